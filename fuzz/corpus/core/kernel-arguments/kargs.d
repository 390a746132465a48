kargs = ["a=1", "b"]
match-architectures = ["x86_64"]
