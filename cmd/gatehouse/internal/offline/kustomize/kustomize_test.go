package kustomize

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// write writes the files of an archive, in which URL is that of a server, and returns their directory.
func write(t *testing.T, url, archive string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range txtar.Parse([]byte(strings.ReplaceAll(archive, "URL", url))).Files {
		path := filepath.Join(dir, filepath.FromSlash(file.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, file.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const configMap = "-- a.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n"

func TestBuild(t *testing.T) {
	dir := write(t, "", `-- base/a.yaml --
{apiVersion: v1, kind: Service, metadata: {name: a}}
-- base/kustomization.yml --
resources: [a.yaml]
-- over/kustomization.yaml --
namespace: shop
resources: [../base]
commonAnnotations: {docs: "https://example.com/a"}
configMapGenerator: [{name: c, literals: ["home=https://example.com"], files: ["icon=logo@2x.txt"], options: {disableNameSuffixHash: true}}]
patches: [{target: {kind: Service}, patch: '{apiVersion: v1, kind: Service, metadata: {name: a, labels: {see: there}}}'}]
patchesStrategicMerge: ['{apiVersion: v1, kind: Service, metadata: {name: a, annotations: {flag: "--url=https://example.com"}}}']
transformers: ["{apiVersion: builtin, kind: PrefixTransformer, metadata: {name: p}, prefix: x-, fieldSpecs: [{path: metadata/name}]}"]
-- over/logo@2x.txt --
logo
`)
	const want = `apiVersion: v1
data:
  home: https://example.com
  icon: |
    logo
kind: ConfigMap
metadata:
  annotations:
    docs: https://example.com/a
  name: x-c
  namespace: shop
---
apiVersion: v1
kind: Service
metadata:
  annotations:
    docs: https://example.com/a
    flag: --url=https://example.com
  labels:
    see: there
  name: x-a
  namespace: shop
`
	dir = filepath.Join(dir, "over")
	if text, err := Build(dir); err != nil || string(text) != want {
		t.Errorf("got %v\n%s", err, text)
	}
	if got := File(dir); got != filepath.Join(dir, "kustomization.yaml") {
		t.Errorf("the file is %s", got)
	}
}

// TestNothingIsFetched has every place in which kustomize accepts what is remote. For those of HTTP, the library alone asks the server.
func TestNothingIsFetched(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no", http.StatusNotFound)
	}))
	defer server.Close()
	for name, archive := range map[string]string{
		"a resource":                      "-- kustomization.yaml --\nresources: [URL/a.yaml]\n",
		"a resource, in capitals":         "-- kustomization.yaml --\nRESOURCES: [\"HTTP:URL/a.yaml\"]\n",
		"a base":                          "-- kustomization.yaml --\nbases: [URL/a.yaml]\n",
		"a file of JSON":                  "-- kustomization.yaml --\n{\"resources\": [\"\\u0055RL/a.yaml\"]}\n",
		"of a base":                       "-- kustomization.yaml --\nresources: [b]\n-- b/Kustomization --\nresources: [URL/a.yaml]\n",
		"a patch":                         configMap + "-- kustomization.yaml --\nresources: [a.yaml]\npatches: [{path: URL/a.yaml}]\n",
		"a JSON patch":                    configMap + "-- kustomization.yaml --\nresources: [a.yaml]\npatchesJson6902: [{path: URL/a.yaml, target: {version: v1, kind: ConfigMap, name: a}}]\n",
		"a strategic merge":               configMap + "-- kustomization.yaml --\nresources: [a.yaml]\npatchesStrategicMerge: [URL/a.yaml]\n",
		"a file of a generator":           "-- kustomization.yaml --\nconfigMapGenerator: [{name: a, files: [\"a b=URL/a.yaml\"]}]\n",
		"variables of a secret":           "-- kustomization.yaml --\nsecretGenerator: [{name: a, envs: [URL/a.env]}]\n",
		"a replacement":                   configMap + "-- kustomization.yaml --\nresources: [a.yaml]\nreplacements: [{path: URL/a.yaml}]\n",
		"a definition":                    configMap + "-- kustomization.yaml --\nresources: [a.yaml]\ncrds: [URL/a.yaml]\n",
		"a configuration":                 configMap + "-- kustomization.yaml --\nresources: [a.yaml]\nconfigurations: [URL/a.yaml]\n",
		"a schema":                        configMap + "-- kustomization.yaml --\nresources: [a.yaml]\nopenapi: {path: URL/a.json}\n",
		"a generator":                     "-- kustomization.yaml --\ngenerators: [URL/a.yaml]\n",
		"a generator in the text":         "-- kustomization.yaml --\ngenerators: [\"{apiVersion: builtin, kind: ConfigMapGenerator, metadata: {name: a}, Files: ['URL/a.yaml']}\"]\n",
		"a generator in a file":           "-- kustomization.yaml --\ngenerators: [g.txt]\n-- g.txt --\napiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: a}\nfiles: [\"\\x55RL/a.yaml\"]\n",
		"a transformer in a file":         configMap + "-- kustomization.yaml --\nresources: [a.yaml]\ntransformers: [t.yaml]\n-- t.yaml --\napiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: a}\npath: URL/a.yaml\n",
		"of a component":                  configMap + "-- kustomization.yaml --\nresources: [a.yaml]\ncomponents: [c]\n-- c/kustomization.yaml --\napiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{path: URL/a.yaml}]\n",
		"git: a host":                     "-- kustomization.yaml --\nresources: [GitHub.com/example/base]\n",
		"git: a host, beside a directory": "-- kustomization.yaml --\nresources: [github.com/example/base]\n-- github.com/example/base/kustomization.yaml --\nnamespace: a\n",
		"git: ssh":                        "-- kustomization.yaml --\nresources: [\"ssh://git@127.0.0.1:1/example/base\"]\n",
		"git: scp":                        "-- kustomization.yaml --\ncomponents: [\"git@127.0.0.1:example/base\"]\n",
		"git: a file":                     "-- kustomization.yaml --\nresources: [\"file:///nowhere/base\"]\n",
		"git: forced":                     "-- kustomization.yaml --\nresources: [\"git::URL/example/base?ref=a\"]\n",
	} {
		t.Run(name, func(t *testing.T) {
			url := server.URL
			archive = strings.ReplaceAll(archive, "HTTP:URL", "HTTP:"+strings.TrimPrefix(url, "http:"))
			archive = strings.NewReplacer(`\u0055RL`, `\u0068`+url[1:], `\x55RL`, `\x68`+url[1:]).Replace(archive)
			dir := write(t, url, archive)
			if !strings.HasPrefix(name, "git") {
				asked.Store(0)
				_, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
				if err == nil || asked.Load() == 0 {
					t.Errorf("the library does not ask: %v", err)
				}
			}
			asked.Store(0)
			if _, err := Build(dir); err == nil || !strings.Contains(err.Error(), " is remote, and nothing is fetched (hint: ") || asked.Load() > 0 {
				t.Errorf("%v; %d calls", err, asked.Load())
			}
		})
	}
}

// TestHostile: nothing leaves the root, runs, or goes on for ever.
func TestHostile(t *testing.T) {
	outside := write(t, "", configMap)
	for name, c := range map[string]struct{ archive, want string }{
		"a file elsewhere":            {"-- kustomization.yaml --\nresources: [" + outside + "/a.yaml]\n", "security; file"},
		"a file behind a link":        {"-- kustomization.yaml --\nconfigMapGenerator: [{name: a, files: [link/a.yaml]}]\n", "security; file"},
		"an endless file":             {"-- kustomization.yaml --\nresources: [zero]\n", "zero"},
		"a circle":                    {"-- kustomization.yaml --\nresources: [b]\n-- b/kustomization.yaml --\nresources: [..]\n", "cycle detected"},
		"a circle of links":           {"-- kustomization.yaml --\nresources: [circle]\n", "too many links"},
		"Helm":                        {"-- kustomization.yaml --\nhelmCharts: [{name: a, repo: 'https://127.0.0.1:1'}]\n", "must specify --enable-helm"},
		"a program":                   {configMap + "-- kustomization.yaml --\nresources: [a.yaml]\ntransformers: [\"{apiVersion: v1, kind: Own, metadata: {name: a, annotations: {config.kubernetes.io/function: 'exec: {path: ./run}'}}}\"]\n", "external plugins disabled"},
		"a directory of transformers": {configMap + "-- kustomization.yaml --\nresources: [a.yaml]\ntransformers: [t]\n-- t/kustomization.yaml --\nresources: [t.yaml]\n-- t/t.yaml --\n{}\n", "is a directory of generators, transformers or validators, which is not supported (hint: name its files)"},
		"two files":                   {"-- kustomization.yaml --\nnamespace: a\n-- Kustomization --\nnamespace: b\n", "Found multiple kustomization files"},
		"an unknown field":            {"-- kustomization.yaml --\nresource: [a.yaml]\n", `unknown field "resource"`},
		"no kustomization":            {configMap, "unable to find one of 'kustomization.yaml'"},
		"many aliases":                {"-- kustomization.yaml --\ncommonLabels: {a: &a [x,x,x,x,x,x,x,x,x], b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a], c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b], d: &d [*c,*c,*c,*c,*c,*c,*c,*c], e: &e [*d,*d,*d,*d,*d,*d,*d,*d], f: [*e,*e,*e,*e,*e,*e,*e]}\n", "when YAML aliases are expanded"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, "", c.archive)
			for link, to := range map[string]string{"link": outside, "zero": "/dev/zero", "circle": filepath.Join(dir, "circle")} {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			text, err := Build(dir)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q\n%s", err, c.want, text)
			}
		})
	}
}
