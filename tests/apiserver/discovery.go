package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// groupList answers /apis: the aggregated form from the library, and the older list of groups made from it, because the
// library's own list knows the groups of one half of the server only.
func groupList(aggregated http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "APIGroupDiscoveryList") {
			aggregated.ServeHTTP(w, r)
			return
		}
		inner, recorded := r.Clone(r.Context()), httptest.NewRecorder()
		inner.Header = http.Header{"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}}
		aggregated.ServeHTTP(recorded, inner)
		var all apidiscoveryv2.APIGroupDiscoveryList
		if err := json.NewDecoder(recorded.Body).Decode(&all); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
		for _, item := range all.Items {
			group := metav1.APIGroup{Name: item.Name}
			for _, version := range item.Versions {
				group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: item.Name + "/" + version.Version, Version: version.Version})
			}
			if len(group.Versions) > 0 {
				group.PreferredVersion = group.Versions[0]
				list.Groups = append(list.Groups, group)
			}
		}
		answer(w, http.StatusOK, list)
	})
}
