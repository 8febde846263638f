package podvalidity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/rules"
)

// mutant is an object with another value in one field. Its key is the type and name of the field and the value.
type mutant struct {
	key    string
	object map[string]any
}

// TestRulesAreThoseOfTheAPIServer puts values of all sorts into every field of valid objects, one at a time. What the API server
// accepts is not refused; what it refuses is refused, or its field is among those
// of testdata/unchecked.txt: expressions, what refers to other fields or objects, and what is required.
func TestRulesAreThoseOfTheAPIServer(t *testing.T) {
	t.Parallel()
	v := newValidator(t)
	var work []mutant
	seen := map[string]bool{}
	for _, object := range objects(t) {
		gvk := object.GroupVersionKind()
		if status, answer := v.create(object.Object); status != http.StatusCreated {
			t.Errorf("%s %s is not valid to begin with: %s", gvk.Kind, object.GetName(), answer)
			continue
		}
		if found := rules.Validate(gvk, object.Object); len(found) > 0 {
			t.Errorf("%s %s is refused: %v", gvk.Kind, object.GetName(), found)
		}
		typed, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		mutate(reflect.TypeOf(typed).Elem(), object.Object, func(key string, change func() (undo func())) {
			// Pods and templates have rules of their own.
			if context := fmt.Sprint(key, gvk.Kind == "Pod", strings.HasSuffix(gvk.Kind, "Job"), gvk.Kind == "StatefulSet"); !seen[context] {
				seen[context] = true
				undo := change()
				work = append(work, mutant{key, runtime.DeepCopyJSON(object.Object)})
				undo()
			}
		})
	}
	checkDoubled(t, work)
	var mutex sync.Mutex
	missed, refused := map[string]bool{}, 0
	var group sync.WaitGroup
	queue := make(chan mutant)
	for range 8 {
		group.Go(func() {
			for m := range queue {
				status, answer := v.create(m.object)
				u := unstructured.Unstructured{Object: m.object}
				found := rules.Validate(u.GroupVersionKind(), m.object)
				mutex.Lock()
				switch {
				case status == 0:
					t.Logf("%s: %s", m.key, answer)
				case status == http.StatusCreated && len(found) > 0 && !strings.HasPrefix(m.key, "ServicePort.nodePort"): // a dry run allocates none
					t.Errorf("%s: the API server accepts a %s, but: %v", m.key, u.GetKind(), found)
				case status == http.StatusUnprocessableEntity && len(found) == 0:
					name, _, _ := strings.Cut(m.key, " ")
					missed[name+": "+reason.FindString(answer)] = true
					t.Logf("%s: %s", m.key, answer)
				case status == http.StatusUnprocessableEntity:
					refused++
				}
				mutex.Unlock()
			}
		})
	}
	for _, m := range work {
		queue <- m
	}
	close(queue)
	group.Wait()
	t.Logf("%d objects, of which both refuse %d, and the API server alone %d", len(work), refused, len(missed))
	got, path := strings.Join(slices.Sorted(maps.Keys(missed)), "\n")+"\n", "testdata/unchecked.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != got {
		t.Errorf("what the API server alone refuses is not what %s has: run with UPDATE_GOLDEN=1 and read the difference (%v)", path, err)
	}
}

// checkDoubled reports lists of the generated table whose elements must differ, and of which no object has one with two equal elements.
func checkDoubled(t *testing.T, work []mutant) {
	t.Helper()
	tried, types := map[string]bool{}, map[string]bool{}
	for _, m := range work {
		of, _, _ := strings.Cut(m.key, ".")
		tried[m.key], types[of] = true, true
	}
	table, err := os.ReadFile("../../webhooks/kinds/rules/zz_generated.rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, parts := range differing.FindAllStringSubmatch(string(table), -1) {
		// Pods with ephemeral containers are not created, and eviction responders are dropped.
		if key := parts[1] + "." + parts[2]; types[parts[1]] && !tried[key+" doubled"] && key != "PodSpec.ephemeralContainers" && key != "PodSpec.evictionResponders" {
			t.Errorf("no object has %s", key)
		}
	}
}

// differing matches a list whose elements differ in the table of rules, without the package of the type.
var differing = regexp.MustCompile(`(?m)^(?:[a-z]+/v1\.)?([A-Z]\w*)\.(\w+) (?:.* )?differ\b`)

// reason matches why the API server refuses a value.
var reason = regexp.MustCompile(`[A-Z][a-z]+ value|Forbidden|Not found|Too (long|many)`)

// objects returns the objects of testdata.
func objects(t *testing.T) (all []unstructured.Unstructured) {
	t.Helper()
	paths, err := filepath.Glob("testdata/objects/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLToJSONDecoder(bytes.NewReader(text))
		for {
			var raw json.RawMessage
			var u unstructured.Unstructured
			if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if err := u.UnmarshalJSON(raw); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			all = append(all, u)
		}
	}
	return all
}

// mutate yields a change for each value of each field of an object of a type, and of everything below it.
func mutate(t reflect.Type, object map[string]any, yield func(key string, change func() func())) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			mutate(f.Type, object, yield)
			continue
		}
		if name == "" || name == "-" || name == "status" || name == "apiVersion" || name == "kind" && t.Name() == "TypeMeta" || t.Name() == "ObjectMeta" && name != "labels" && name != "annotations" {
			continue
		}
		before, present := object[name]
		for label, value := range values(f.Type) {
			yield(t.Name()+"."+name+" "+label, func() func() {
				object[name] = value
				return func() {
					if object[name] = before; !present {
						delete(object, name)
					}
				}
			})
		}
		if list, ok := before.([]any); ok && len(list) > 0 {
			yield(t.Name()+"."+name+" doubled", func() func() {
				object[name] = append(slices.Clip(list), list[0])
				return func() { object[name] = before }
			})
		}
		if present {
			yield(t.Name()+"."+name+" removed", func() func() {
				delete(object, name)
				return func() { object[name] = before }
			})
		}
		below := f.Type
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
			below = below.Elem()
		}
		if below.Kind() != reflect.Struct || below.PkgPath() == "k8s.io/apimachinery/pkg/api/resource" {
			continue
		}
		switch before := before.(type) {
		case map[string]any:
			mutate(below, before, yield)
		case []any:
			for _, element := range before {
				if element, ok := element.(map[string]any); ok {
					mutate(below, element, yield)
				}
			}
		}
	}
}

// values returns values of a type, by what they are called.
func values(t reflect.Type) map[string]any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	all := map[string]any{}
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		all["-1"], all["0"], all["1500m"] = "-1", "0", "1500m"
	case t == reflect.TypeFor[intstr.IntOrString]():
		all["-1"], all["0"], all["70000"], all["110%"], all["no such value!"], all["a"] = int64(-1), int64(0), int64(70000), "110%", "no such value!", "a"
	case t.Kind() == reflect.String:
		for _, text := range []string{"no such value!", "a", "A_b", "a.example/b", "/a/../b", "../a", "*", "10.0.0.1", "a-", " a ", strings.Repeat("a", 300)} {
			all[fmt.Sprintf("%.20q", text)] = text
		}
	case t.Kind() == reflect.Int32 || t.Kind() == reflect.Int64:
		for _, n := range []int64{-1, 0, 1, 300, 70000, 1<<31 - 1} {
			all[fmt.Sprint(n)] = n
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		for label, value := range values(t.Elem()) {
			all["["+label+"]"] = []any{value}
		}
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.String:
		for label, m := range map[string]map[string]any{"key": {"no such key!": "a"}, "value": {"a": "no such value!"}, "path": {"a/b/c": "a"}} {
			all[label] = m
		}
	case t.Kind() == reflect.Map && t.Elem() == reflect.TypeFor[resource.Quantity]():
		for label, m := range map[string]map[string]any{"key": {"no such key!": "1"}, "unknown": {"bogus": "1"}, "negative": {"cpu": "-1"}, "extended": {"a.example/b": "1500m"}} {
			all[label] = m
		}
	}
	return all
}

// create returns the API server's answer to the creation of an object.
func (v *validator) create(object map[string]any) (status int, answer string) {
	u := unstructured.Unstructured{Object: object}
	gvk := u.GroupVersionKind()
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	path := "/apis/" + gvk.Group + "/" + gvk.Version
	if gvk.Group == "" {
		path = "/api/v1"
	}
	if u.GetNamespace() != "" {
		path += "/namespaces/" + u.GetNamespace()
	}
	text, err := json.Marshal(object)
	if err != nil {
		v.t.Error(err)
	}
	request, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.host+path+"/"+plural.Resource+"?dryRun=All", bytes.NewReader(text))
	if err != nil {
		v.t.Error(err)
		return 0, ""
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := v.client.Do(request)
	if err != nil {
		return 0, err.Error() // some values make it panic
	}
	defer response.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		v.t.Error(err)
	}
	var message struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(body, &message); err != nil {
		v.t.Error(err)
	}
	return response.StatusCode, message.Message
}
