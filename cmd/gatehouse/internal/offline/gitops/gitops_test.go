package gitops_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/itchyny/gojq"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/gitops"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// encoded returns the JSON of a value.
func encoded(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// without returns an object as a tool compares it: without what rules have removed, and without labels and annotations of which nothing is
// left, which the API server does not store.
func without(t *testing.T, object []byte, pointers, expressions []string) any {
	t.Helper()
	for _, pointer := range pointers {
		patch, err := jsonpatch.DecodePatch(encoded(t, []map[string]string{{"op": "remove", "path": pointer}}))
		if err == nil {
			object, err = patch.ApplyWithOptions(object, &jsonpatch.ApplyOptions{SupportNegativeIndices: true, AllowMissingPathOnRemove: true})
		}
		if err != nil {
			t.Fatalf("remove %s: %v", pointer, err)
		}
	}
	var tree any
	if err := json.Unmarshal(object, &tree); err != nil {
		t.Fatal(err)
	}
	for _, expression := range expressions {
		query, err := gojq.Parse("del(" + expression + ")")
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		results := query.Run(tree)
		tree, _ = results.Next()
		if err, failed := tree.(error); failed {
			t.Fatalf("%s: %v", expression, err)
		}
	}
	if root, ok := tree.(map[string]any); ok {
		if metadata, ok := root["metadata"].(map[string]any); ok {
			for _, name := range []string{"labels", "annotations"} {
				if of, ok := metadata[name].(map[string]any); ok && len(of) == 0 {
					delete(metadata, name)
				}
			}
		}
	}
	return tree
}

// checkRules holds that both sides are equal for both tools, and that no rule can be left out. It returns what Flux has no rule for.
func checkRules(t *testing.T, o gitops.Object, before, after []byte) []gitops.Path {
	t.Helper()
	isEqual := func(pointers, expressions []string) bool {
		return reflect.DeepEqual(without(t, before, pointers, expressions), without(t, after, pointers, expressions))
	}
	var argo gitops.ArgoRule
	for _, rule := range gitops.ArgoCD([]gitops.Object{o}) {
		if rule.Group != o.Group || rule.Kind != o.Kind || rule.Name != o.Name || rule.Namespace != o.Namespace {
			t.Fatalf("rule %+v is about another object than %+v", rule, o)
		}
		argo = rule
	}
	if !isEqual(argo.JSONPointers, argo.JQPathExpressions) {
		t.Fatalf("Argo CD sees a difference beside %q and %q:\n%s\n%s", argo.JSONPointers, argo.JQPathExpressions, before, after)
	}
	for i := range argo.JSONPointers {
		if isEqual(slices.Delete(slices.Clone(argo.JSONPointers), i, i+1), argo.JQPathExpressions) {
			t.Errorf("nothing differs at %s:\n%s\n%s", argo.JSONPointers[i], before, after)
		}
	}
	for i := range argo.JQPathExpressions {
		if isEqual(argo.JSONPointers, slices.Delete(slices.Clone(argo.JQPathExpressions), i, i+1)) {
			t.Errorf("nothing differs at %s:\n%s\n%s", argo.JQPathExpressions[i], before, after)
		}
	}
	rules, left := gitops.Flux([]gitops.Object{o})
	var pointers, others []string
	for _, rule := range rules {
		for pattern, text := range map[string]string{rule.Target.Group: o.Group, rule.Target.Version: o.Version, rule.Target.Kind: o.Kind, rule.Target.Name: o.Name, rule.Target.Namespace: o.Namespace} {
			if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(text) {
				t.Errorf("%q does not select %q", pattern, text)
			}
		}
		pointers = append(pointers, rule.Paths...)
	}
	var paths []gitops.Path
	for _, paths = range left {
		for _, p := range paths {
			others = append(others, p.JQ())
		}
	}
	if !isEqual(pointers, others) {
		t.Fatalf("Flux sees a difference beside %q and %q:\n%s\n%s", pointers, others, before, after)
	}
	return paths
}

// TestDifferences are the forms that paths have.
func TestDifferences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		jq, pointers  []string // a pointer of "" is one that does not exist
	}{
		"nothing":  {`{"a":[1,{"b":2}]}`, `{"a":[1,{"b":2}]}`, nil, nil},
		"a field":  {`{"spec":{"replicas":1}}`, `{"spec":{"replicas":3}}`, []string{".spec.replicas"}, []string{"/spec/replicas"}},
		"escaping": {`{}`, `{"a/b~c":1,"x\"y":2,"\\(1)":3}`, []string{`.["\\(1)"]`, `.["a/b~c"]`, `.["x\"y"]`}, []string{`/\(1)`, `/a~1b~0c`, `/x"y`}},
		"one annotation of several": {
			`{"metadata":{"annotations":{"a":"1"}}}`,
			`{"metadata":{"annotations":{"a":"1","example.org/x":"1"}}}`,
			[]string{`.metadata.annotations["example.org/x"]`},
			[]string{"/metadata/annotations/example.org~1x"},
		},
		"the first label":  {`{"metadata":{}}`, `{"metadata":{"labels":{"team":"a"}}}`, []string{".metadata.labels.team"}, []string{"/metadata/labels/team"}},
		"the last label":   {`{"metadata":{"labels":{"team":"a"}}}`, `{"metadata":{}}`, []string{".metadata.labels.team"}, []string{"/metadata/labels/team"}},
		"an added object":  {`{"spec":{}}`, `{"spec":{"securityContext":{"runAsNonRoot":true}}}`, []string{".spec.securityContext"}, []string{"/spec/securityContext"}},
		"two new elements": {`{"c":[{"name":"a"}]}`, `{"c":[{"name":"a"},{"name":"b"},{"name":"c"}]}`, []string{`.c[]? | select(.name == "c")`, `.c[]? | select(.name == "b")`}, []string{"/c/2", "/c/1"}},
		"an element in front": {
			`{"c":[{"name":"a"}]}`, `{"c":[{"name":"b"},{"name":"a"}]}`, []string{`.c[]? | select(.name == "b")`}, []string{""},
		},
		"in an element": {
			`{"c":[{"name":"a","env":[{"name":"X"}]}]}`, `{"c":[{"name":"a","env":[{"name":"X"},{"name":"Y"}],"a/b":1}]}`,
			[]string{`.c[]? | select(.name == "a") | .["a/b"]`, `.c[]? | select(.name == "a") | .env[]? | select(.name == "Y")`},
			[]string{"/c/0/a~1b", "/c/0/env/1"},
		},
		"mounts":            {`{"m":[{"name":"v","mountPath":"/a"}]}`, `{"m":[{"name":"v","mountPath":"/a"},{"name":"v","mountPath":"/b"}]}`, []string{`.m[]? | select(.mountPath == "/b")`}, []string{"/m/1"}},
		"strings":           {`{"f":["a"]}`, `{"f":["a","b"]}`, []string{`.f[]? | select(. == "b")`}, []string{"/f/1"}},
		"a string replaced": {`{"f":["a","x"]}`, `{"f":["a","y"]}`, []string{`.f[]? | select(. == "x")`, `.f[]? | select(. == "y")`}, []string{"/f/1", "/f/1"}},
		"another order":     {`{"f":["a","b"]}`, `{"f":["b","a"]}`, []string{".f"}, []string{"/f"}},
		"without names":     {`{"f":[{"x":1}]}`, `{"f":[{"x":1},{"x":2}]}`, []string{".f"}, []string{"/f"}},
		"one name twice":    {`{"f":["a","a"]}`, `{"f":["a"]}`, []string{".f"}, []string{"/f"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paths, err := gitops.Differences([]byte(c.before), []byte(c.after))
			if err != nil {
				t.Fatal(err)
			}
			var jq, pointers []string
			for _, p := range paths {
				pointer, _ := p.Pointer()
				jq, pointers = append(jq, p.JQ()), append(pointers, pointer)
			}
			if !slices.Equal(jq, c.jq) || !slices.Equal(pointers, c.pointers) {
				t.Errorf("paths %q and %q, want %q and %q", jq, pointers, c.jq, c.pointers)
			}
			checkRules(t, gitops.Object{Version: "v1", Kind: "Pod", Namespace: "shop", Name: "a.b", Paths: paths}, []byte(c.before), []byte(c.after))
		})
	}
}

// TestMerged holds when objects share a rule.
func TestMerged(t *testing.T) {
	t.Parallel()
	paths := func(field string) []gitops.Path {
		p, err := gitops.Differences([]byte(`{}`), []byte(`{"`+field+`":1}`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	object := func(name string, p []gitops.Path) gitops.Object {
		namespace, name, _ := strings.Cut(name, "/")
		return gitops.Object{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: namespace, Name: name, Paths: p}
	}
	for name, c := range map[string]struct {
		objects    []gitops.Object
		argo, flux string
	}{
		"all of a kind":      {[]gitops.Object{object("s/b", paths("x")), object("s/a.c", paths("x"))}, "s/ /x", `s/a\.c|b /x`},
		"in all namespaces":  {[]gitops.Object{object("s/a", paths("x")), object("s/b", paths("x")), object("t/a", paths("x"))}, "/ /x", "s/a|b /x; t/a /x"},
		"one stays as it is": {[]gitops.Object{object("s/a", paths("x")), object("s/b", nil), object("s/c", paths("x"))}, "s/a /x; s/c /x", "s/a|c /x"},
		"others":             {[]gitops.Object{object("s/b", paths("y")), object("s/a", paths("x"))}, "s/a /x; s/b /y", "s/a /x; s/b /y"},
		"given twice":        {[]gitops.Object{object("s/a", paths("x")), object("s/a", paths("x"))}, "s/a /x", "s/a /x"},
		"nothing":            {[]gitops.Object{object("s/a", nil), object("s/b", nil)}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var argo, flux []string
			for _, r := range gitops.ArgoCD(c.objects) {
				argo = append(argo, r.Namespace+"/"+r.Name+" "+strings.Join(r.JSONPointers, ","))
			}
			rules, _ := gitops.Flux(c.objects)
			for _, r := range rules {
				flux = append(flux, r.Target.Namespace+"/"+r.Target.Name+" "+strings.Join(r.Paths, ","))
			}
			if got := strings.Join(argo, "; "); got != c.argo {
				t.Errorf("Argo CD has %q, want %q", got, c.argo)
			}
			if got := strings.Join(flux, "; "); got != c.flux {
				t.Errorf("Flux has %q, want %q", got, c.flux)
			}
		})
	}
}

// TestExamples changes all objects of the examples by the configuration of their directory, and a pod by every configuration.
func TestExamples(t *testing.T) {
	t.Parallel()
	const examples = "../../../../../manifests/examples"
	dirs, err := os.ReadDir(examples)
	if err != nil {
		t.Fatal(err)
	}
	pod := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {app: web}}\nspec:\n  initContainers: [{name: init, image: a}]\n  containers: [{name: web, image: a}]\n")
	workloads, err := manifest.NewWorkloads()
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, dir := range dirs {
		at := filepath.Join(examples, dir.Name(), "config")
		if _, err := os.Stat(at); err != nil {
			at = filepath.Join(examples, dir.Name())
		}
		_, snapshot, found := config.CompileDir(at)
		if !dir.IsDir() || found.Err() != nil {
			continue
		}
		files := []*manifest.File{manifest.Read("pod.yaml", pod, workloads)}
		err := filepath.WalkDir(filepath.Join(examples, dir.Name()), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".yaml" || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(name)
			files = append(files, manifest.Read(name, text, workloads))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		resources := request.NewResources(nil)
		decider := admit.Decider{Snapshot: snapshot, Resources: resources}
		for _, file := range files {
			for _, o := range file.Objects {
				if o.Odd || o.Unreadable != nil {
					continue
				}
				req, err := admit.Request(resources, request.Spec{Object: o.JSON(), Namespace: "shop"})
				if err != nil {
					continue // it is about something else
				}
				before := req.Object.Raw
				decider.Mutate(t.Context(), &req, "", false)
				if sidecar.IsNewPod(&req) {
					admit.Inject(t.Context(), snapshot.Sidecar, &req)
				}
				paths, err := gitops.Differences(before, req.Object.Raw)
				if err != nil {
					t.Fatal(err)
				}
				if len(paths) > 0 {
					changed++
				}
				kind := o.GroupVersionKind()
				checkRules(t, gitops.Object{Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Namespace: "shop", Name: o.Name, Paths: paths}, before, req.Object.Raw)
			}
		}
	}
	if changed < 5 {
		t.Errorf("only %d objects were changed", changed)
	}
}

// TestRandom compares random objects with what random changes make of them.
func TestRandom(t *testing.T) {
	t.Parallel()
	left := 0
	for seed := range uint64(3000) {
		g := generator{rand.New(rand.NewPCG(seed, 7))}
		before := g.object(3)
		text := encoded(t, before)
		var copied map[string]any
		_ = json.Unmarshal(text, &copied)
		for range 1 + g.IntN(4) {
			g.change(copied)
		}
		after := encoded(t, copied)
		paths, err := gitops.Differences(text, after)
		if err != nil {
			t.Fatal(err)
		}
		left += len(checkRules(t, gitops.Object{Version: "v1", Kind: "Pod", Name: "a", Paths: paths}, text, after))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if left == 0 {
		t.Error("no change is without a pointer")
	}
}

// generator makes random objects.
type generator struct{ *rand.Rand }

func (g generator) name() string {
	return []string{"a", "b", "metadata", "labels", "annotations", "name", "mountPath", "x/y", "~1", `q"`, `\(1)`, "if", "é", "0"}[g.IntN(14)]
}

func (g generator) value(depth int) any {
	switch n := g.IntN(7); {
	case n < 2 && depth > 0:
		return g.object(depth - 1)
	case n == 2 && depth > 0:
		key, list := []string{"name", "mountPath", "ip"}[g.IntN(3)], []any{}
		for i := range g.IntN(4) {
			element := g.object(depth - 1)
			element[key] = fmt.Sprintf("%s%d", g.name(), i)
			list = append(list, element)
		}
		return list
	case n == 3 && depth > 0:
		list := []any{}
		for range g.IntN(4) {
			list = append(list, g.value(depth-1))
		}
		return list
	case n == 4:
		list := []any{}
		for i := range g.IntN(4) {
			list = append(list, fmt.Sprintf("%s%d", g.name(), i))
		}
		return list
	case n == 5:
		return g.name()
	default:
		return float64(g.IntN(3))
	}
}

func (g generator) object(depth int) map[string]any {
	out := map[string]any{}
	for range 1 + g.IntN(4) {
		out[g.name()] = g.value(depth)
	}
	return out
}

// change changes something in an object.
func (g generator) change(object map[string]any) {
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 || g.IntN(4) == 0 {
		object[g.name()] = g.value(2)
		return
	}
	name := names[g.IntN(len(names))]
	switch value := object[name].(type) {
	case map[string]any:
		g.change(value)
	case []any:
		at := g.IntN(len(value) + 1)
		switch g.IntN(3) {
		case 0:
			object[name] = slices.Insert(slices.Clone(value), at, any(map[string]any{"name": "new", "mountPath": "new", "ip": "new"}))
		case 1:
			object[name] = slices.Insert(slices.Clone(value), at, any("new"))
		default:
			if at == len(value) {
				delete(object, name)
			} else if element, ok := value[at].(map[string]any); ok {
				g.change(element)
			} else {
				object[name] = slices.Delete(slices.Clone(value), at, at+1)
			}
		}
	default:
		object[name] = g.value(1)
	}
}

// FuzzDifferences compares two objects.
func FuzzDifferences(f *testing.F) {
	f.Add(`{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"labels":{"a/b":"~"}},"spec":{"c":[{"name":"x"}]}}`)
	f.Add(`{"c":["a","b"]}`, `{"c":["b","c"]}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		paths, err := gitops.Differences([]byte(before), []byte(after))
		if err != nil || strings.Contains(before+after, `""`) { // the patch library does not find a member without a name
			return
		}
		var sides [2]map[string]any
		for i, text := range []string{before, after} { // without members that are there twice
			if json.Unmarshal([]byte(text), &sides[i]) != nil || sides[i] == nil {
				return
			}
		}
		one, other := encoded(t, sides[0]), encoded(t, sides[1])
		checkRules(t, gitops.Object{Version: "v1", Kind: "Pod", Name: "a", Paths: paths}, one, other)
	})
}
