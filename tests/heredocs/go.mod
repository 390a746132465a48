module machine-config-agent/tests/heredocs

go 1.25.9

require github.com/openshift/imagebuilder v1.2.22

require (
	github.com/containerd/typeurl/v2 v2.3.0 // indirect
	github.com/docker/go-units v0.5.0 // indirect
	github.com/moby/buildkit v0.31.2 // indirect
	github.com/moby/sys/mountinfo v0.7.2 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/planetscale/vtprotobuf v0.6.1-0.20240319094008-0393e58bdf10 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	go.podman.io/storage v1.64.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
