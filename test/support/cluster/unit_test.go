package cluster

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

func TestMergeFlags(t *testing.T) {
	defaults := []string{"--mode=Node,RBAC", "--switch", "--dir=/tmp"}
	for _, test := range []struct {
		name  string
		flags []string
		want  []string
	}{
		{"none", nil, defaults},
		{"added", []string{"--new=1"}, []string{"--mode=Node,RBAC", "--switch", "--dir=/tmp", "--new=1"}},
		{"replaced", []string{"--mode=RBAC"}, []string{"--switch", "--dir=/tmp", "--mode=RBAC"}},
		{"replaced, no value", []string{"--switch=false"}, []string{"--mode=Node,RBAC", "--dir=/tmp", "--switch=false"}},
		{"taken away", []string{"--mode-"}, []string{"--switch", "--dir=/tmp"}},
		{"repeated", []string{"--mode=A", "--mode=B"}, []string{"--switch", "--dir=/tmp", "--mode=A", "--mode=B"}},
		{"value with dash and equals sign", []string{"--gates=A=true,B=-"}, []string{"--mode=Node,RBAC", "--switch", "--dir=/tmp", "--gates=A=true,B=-"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := mergeFlags(defaults, test.flags)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
	for _, flag := range []string{"", "-v=2", "v=2", "--", "--=x", "---"} {
		_, err := mergeFlags(nil, []string{flag})
		if err == nil || !strings.Contains(err.Error(), "--name=value") {
			t.Errorf("flag %q: got %v, want an error that says what is allowed", flag, err)
		}
	}
}

func TestAssets(t *testing.T) {
	complete, incomplete := t.TempDir(), t.TempDir()
	for _, name := range []string{etcdProgram, apiServerProgram, kubectlProgram} {
		err := os.WriteFile(filepath.Join(complete, name), nil, 0o700)
		if err != nil {
			t.Fatal(err)
		}
	}
	err := os.WriteFile(filepath.Join(incomplete, etcdProgram), nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	root, err := support.Root()
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name                     string
		assets, envtest, version string
		want                     string
		wantErr                  []string
	}{
		{name: "ours", assets: complete, envtest: incomplete, want: complete},
		{name: "envtest's", envtest: complete, want: complete},
		{name: "not executable", assets: incomplete, wantErr: []string{"etcd in " + incomplete, AssetsVariable, "hint: "}},
		{name: "missing", envtest: "/nonexistent", wantErr: []string{"/nonexistent", "etcd is missing", EnvtestVariable, "hint: "}},
		{name: "version", version: "v1.0.0", wantErr: []string{root + "/bin/controlplane/1.0.0", "make controlplane KUBERNETES_VERSION=v1.0.0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(AssetsVariable, test.assets)
			t.Setenv(EnvtestVariable, test.envtest)
			t.Setenv(VersionVariable, test.version)
			got, err := Assets()
			if got != test.want || (err != nil) != (test.wantErr != nil) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
			for _, want := range test.wantErr {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("got error %q, want %q in it", err, want)
				}
			}
		})
	}
}

func TestAssetsOutsideTheRepository(t *testing.T) {
	t.Chdir("/")
	for _, variable := range []string{AssetsVariable, EnvtestVariable, VersionVariable} {
		t.Setenv(variable, "")
	}
	_, err := Assets()
	if err == nil || !strings.Contains(err.Error(), AssetsVariable) {
		t.Errorf("got %v, want an error that names %s", err, AssetsVariable)
	}
}
