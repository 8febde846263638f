package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// checkInvariants holds an answer against what is true of every answer: a patch
// applies with the API server's library, changes nothing but what it adds, and
// is not given twice. It tells whether there was one.
func checkInvariants(t testing.TB, set *sidecar.Set, namespace, pod string) bool {
	t.Helper()
	response := set.Review(context.Background(), request(namespace, pod))
	if !response.Allowed {
		if response.Patches != nil || response.Result == nil || response.Result.Message == "" || response.Result.Code != 422 && response.Result.Code != 500 {
			t.Fatalf("%s: got %+v", pod, response)
		}
		return false
	}
	if response.Patches == nil {
		return false
	}
	patched := checkTwice(t, set, namespace, pod, response)
	before, err := rawjson.Parse([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	after, err := rawjson.Parse([]byte(patched))
	if err != nil {
		t.Fatal(err)
	}
	sameMembers(t, "", before, after, "metadata", "spec")
	sameMembers(t, "metadata", before.Get("metadata"), after.Get("metadata"), "annotations")
	sameMembers(t, "metadata.annotations", before.Get("metadata", "annotations"), after.Get("metadata", "annotations"), "sidecar.gatehouse.dev/status")
	sameMembers(t, "spec", before.Get("spec"), after.Get("spec"), "initContainers", "containers", "volumes")
	for _, list := range []string{"initContainers", "containers", "volumes"} {
		sameElements(t, list, before.Get("spec", list), after.Get("spec", list), response.Patches)
	}
	return true
}

// written is a value as the API server's library writes it: it puts space and
// HTML characters into one form, and leaves alone the rest.
func written(t testing.TB, v rawjson.Value) string {
	t.Helper()
	var compact, escaped bytes.Buffer
	if err := json.Compact(&compact, v); err != nil {
		t.Fatal(err)
	}
	json.HTMLEscape(&escaped, compact.Bytes())
	return escaped.String()
}

func sameMembers(t testing.TB, path string, before, after rawjson.Value, but ...string) {
	t.Helper()
	collect := func(v rawjson.Value) map[string]string {
		all := make(map[string]string)
		for name, value := range v.Members() {
			all[name.Text()] = written(t, value)
		}
		for _, name := range but {
			delete(all, name)
		}
		return all
	}
	old, now := collect(before), collect(after)
	if len(old) != len(now) {
		t.Errorf("%s: had %v, has %v", path, old, now)
	}
	for name, text := range old {
		if now[name] != text {
			t.Errorf("%s.%s: was %s, is %s", path, name, text, now[name])
		}
	}
}

// sameElements wants the elements of before in after, in order and unchanged,
// and no others but those that the patch adds.
func sameElements(t testing.TB, list string, before, after rawjson.Value, patch []jsonpatch.Operation) {
	t.Helper()
	added := make(map[string]bool)
	for _, op := range patch {
		if !strings.HasPrefix(op.Path, "/spec/"+list) {
			continue
		}
		raw, _ := op.Value.(json.RawMessage)
		value := rawjson.Value(raw)
		if value.Kind() == rawjson.Object {
			added[written(t, value)] = true
		}
		for _, element := range value.Elements() {
			added[written(t, element)] = true
		}
	}
	var old []string
	for _, element := range before.Elements() {
		old = append(old, written(t, element))
	}
	count := len(added)
	for i, element := range after.Elements() {
		text := written(t, element)
		switch {
		case added[text] && (len(old) == 0 || old[0] != text):
			count--
		case len(old) > 0 && old[0] == text:
			old = old[1:]
		default:
			t.Errorf("%s[%d] is %s", list, i, text)
			return
		}
	}
	if count != 0 || len(old) != 0 {
		t.Errorf("%s: %d elements are not added, and %v are lost", list, count, old)
	}
}

// TestPodSecurityFixtures mutates the pods with which upstream tests the Pod
// Security Standards: they use about every field that pods have.
func TestPodSecurityFixtures(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	set := compile(t, both, shipper())
	var (
		pods    int
		reasons = make(map[sidecar.Reason]int)
		seen    = make(map[string]bool) // Most versions have the same pods.
	)
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(out)), "test", "testdata"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || seen[string(text)] {
			return err
		}
		seen[string(text)] = true
		pods++
		pod := toJSON(t, string(text))
		patched := checkInvariants(t, set, "shop", pod)
		d := set.Decide("shop", []byte(pod))
		reasons[d.Verdicts[0].Reason]++
		if patched != (d.Verdicts[0].Reason == sidecar.Applied) {
			t.Errorf("%s: %+v", path, d)
		}
		var strict corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(apply(t, pod, d.Patches)), &strict); err != nil {
			t.Errorf("%s: the result is no pod: %v", path, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// No fixture shares a name or port with the profiles.
	if pods < 100 || reasons[sidecar.HostNetwork] == 0 || reasons[sidecar.Applied]+reasons[sidecar.HostNetwork] != pods {
		t.Errorf("%d pods: %v", pods, reasons)
	}
}

// TestRandomPods mutates pods with what no pod of ours would have: fields that
// nobody knows, absent and null lists, names and claims that clash.
func TestRandomPods(t *testing.T) {
	t.Parallel()
	set := compile(t, both, shipper(), pair("c", "{objectSelector: {matchLabels: {tier: web}}}"))
	patched := 0
	const pods = 3000
	for seed := range uint64(pods) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		pod := g.pod()
		if checkInvariants(t, set, g.one("shop", "quiet"), pod) {
			patched++
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, pod)
		}
	}
	if patched < pods/10 || patched == pods {
		t.Errorf("%d of %d pods were patched: the generator is of no use", patched, pods)
	}
}

type generator struct{ *rand.Rand }

func (g generator) one(texts ...string) string { return texts[g.IntN(len(texts))] }

func (g generator) pod() string {
	return g.object(
		g.maybe(3, `"apiVersion":"v1"`), g.maybe(3, `"kind":"Pod"`),
		g.maybe(9, `"metadata":`+g.one("null", g.metadata(), g.metadata(), g.metadata())),
		g.maybe(30, `"spec":`+g.spec()),
	)
}

func (g generator) metadata() string {
	return g.object(
		g.maybe(2, `"labels":`+g.one("null", `{"tier":"web"}`, g.object(`"tier":"db"`))),
		g.maybe(3, `"annotations":`+g.one("null", g.object(
			g.maybe(2, `"sidecar.gatehouse.dev/inject":`+g.one(`"true"`, `"true"`, `"false"`, `"no"`)),
			g.maybe(2, `"sidecar.gatehouse.dev/status":`+g.status()),
		))),
	)
}

func (g generator) status() string {
	claims := fmt.Sprintf(`{"profiles":[{"name":"both","revision":"x","initContainers":["setup"%s],"containers":["agent"],"volumes":["scratch"]}]}`, g.one("", `,"proxy"`))
	return string(rawjson.AppendString(nil, g.one("forged", "", claims)))
}

func (g generator) spec() string {
	list := func(names ...string) string {
		elements := make([]string, g.IntN(4))
		for i := range elements {
			elements[i] = g.object(g.maybe(9, `"name":"`+g.one(names...)+`"`), g.maybe(2, `"restartPolicy":"Always"`),
				g.maybe(2, `"ports":[`+g.object(`"containerPort":`+g.one("80", "2020", "9"))+`]`))
		}
		return g.one("null", "["+strings.Join(elements, " , ")+"]", "["+strings.Join(elements, ",")+"]")
	}
	return g.object(
		g.maybe(2, `"initContainers":`+list("own", "first", "second", "setup")),
		g.maybe(9, `"containers":`+list("app", "helper", "other", "third", "agent")),
		g.maybe(3, `"volumes":`+list("data", "tmp", "scratch")),
		g.maybe(3, `"restartPolicy":`+g.one(`"Always"`, `"Never"`)),
		g.maybe(2, `"hostNetwork":`+g.one("false", "false", "false", "true")),
	)
}

// maybe is the text, but absent once in n times.
func (g generator) maybe(n int, text string) string {
	if g.IntN(n) == 0 {
		return ""
	}
	return text
}

// object is an object of the members that are there and of unknown ones, in any
// order.
func (g generator) object(members ...string) string {
	var all []string
	for _, m := range members {
		if m != "" {
			all = append(all, m)
		}
	}
	for i := range g.IntN(3) {
		all = append(all, fmt.Sprintf(`"unknown%d":%s`, i, g.one(`1.50`, `-0`, `1e400`, `"<\u0026>\ud83d\ude00"`, `[ {"a" : null} ]`, `{"z":1,"a":{"name":"proxy"}}`, `true`)))
	}
	g.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return "{" + strings.Join(all, g.one(",", " ,\n")) + "}"
}

// FuzzReview feeds bytes that never were a pod.
func FuzzReview(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `{"spec":null}`, `{"spec":{"containers":[{"name":"app"}]}}`,
		`{"metadata":{"annotations":{"sidecar.gatehouse.dev/inject":"true","sidecar.gatehouse.dev/status":"{}"},"labels":{"tier":"web"}},"spec":{"initContainers":[{"name":"setup"}],"volumes":[{"name":"scratch","emptyDir":{}}]}}`,
		`{"spec":{"containers":[{"name":"app","ports":[{"containerPort":2020,"hostPort":1}],"securityContext":{"windowsOptions":{"hostProcess":true}}}],"restartPolicy":"Never"}}`,
		podOfSize(1500),
	} {
		f.Add([]byte(seed))
	}
	set := compile(f, both, shipper(), pair("c", "{objectSelector: {matchLabels: {tier: web}}}"))
	f.Fuzz(func(t *testing.T, pod []byte) {
		checkInvariants(t, set, "shop", string(pod))
	})
}
