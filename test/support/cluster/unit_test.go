package cluster

import (
	"slices"
	"strings"
	"testing"
)

func TestMergeFlags(t *testing.T) {
	defaults := []string{"--mode=Node,RBAC", "--switch", "--dir=/tmp"}
	for name, test := range map[string]struct{ flags, want []string }{
		"none":               {nil, defaults},
		"added":              {[]string{"--new=1"}, []string{"--mode=Node,RBAC", "--switch", "--dir=/tmp", "--new=1"}},
		"replaced":           {[]string{"--mode=RBAC"}, []string{"--switch", "--dir=/tmp", "--mode=RBAC"}},
		"replaced, no value": {[]string{"--switch=false"}, []string{"--mode=Node,RBAC", "--dir=/tmp", "--switch=false"}},
		"repeated":           {[]string{"--mode=A", "--mode=B"}, []string{"--switch", "--dir=/tmp", "--mode=A", "--mode=B"}},
	} {
		if got := mergeFlags(defaults, test.flags); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestAssetsOfAnotherVersion(t *testing.T) {
	t.Setenv(versionVariable, "v1.0.0")
	_, err := Assets()
	if err == nil || !strings.Contains(err.Error(), "/bin/controlplane/1.0.0/etcd") || !strings.Contains(err.Error(), "make controlplane KUBERNETES_VERSION=v1.0.0") {
		t.Errorf("got %v, want what is missing and how to build it", err)
	}
}
