package podvalidation

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

const plain = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"web:1"}]}}`

func TestErrors(t *testing.T) {
	v := New(t)
	for _, test := range []struct {
		name, pod string
		// want are the beginnings of the errors.
		want []string
	}{
		{"plain", plain, nil},
		{"several lines", strings.ReplaceAll(plain, ",", ",\r\n\t") + "\n", nil},
		{"without kind and namespace", strings.Replace(plain, `"apiVersion":"v1","kind":"Pod",`, "", 1), nil},
		{"in a namespace", strings.Replace(plain, `"name":"web"`, `"generateName":"web-","namespace":"shop"`, 1), nil},
		{"unknown field", strings.Replace(plain, `"spec":{`, `"spec":{"fromTheFuture":{},`, 1), nil},
		{"defaults are set", strings.Replace(plain, `"spec":{`, `"spec":{"volumes":[{"name":"a"}],`, 1), nil},
		{"fields that are derived from others", strings.Replace(plain, `"name":"web"`, `"name":"web","annotations":{"container.apparmor.security.beta.kubernetes.io/web":"runtime/default"}`, 1), nil},
		{"native sidecar", strings.Replace(plain, `"spec":{`, `"spec":{"initContainers":[{"name":"a","image":"a","restartPolicy":"Always","startupProbe":{"httpGet":{"port":80}}}],`, 1), nil},
		{"privileged", strings.Replace(plain, `"web:1"`, `"web:1","securityContext":{"privileged":true}`, 1), nil},

		{"nothing", `{}`, []string{"metadata.name: Required value: name or generateName is required", "spec.containers: Required value"}},
		{"container without a name", strings.Replace(plain, `"name":"web","image"`, `"image"`, 1), []string{"spec.containers[0].name: Required value"}},
		{"several errors", strings.Replace(plain, `"image":"web:1"`, `"imagePullPolicy":"Often","ports":[{"containerPort":0}]`, 1), []string{
			"spec.containers[0].image: Required value", "spec.containers[0].ports[0].containerPort: Required value", `spec.containers[0].imagePullPolicy: Unsupported value: "Often"`,
		}},
		{"same name twice", strings.Replace(plain, `"spec":{`, `"spec":{"initContainers":[{"name":"web","image":"a"}],`, 1), []string{`spec.initContainers[0].name: Duplicate value: "web"`}},
		{"same mount path twice", strings.Replace(plain, `"web:1"}]`, `"web:1","volumeMounts":[{"name":"a","mountPath":"/a"},{"name":"a","mountPath":"/a"}]}],"volumes":[{"name":"a"}]`, 1), []string{`spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique`}},
		{"probe of an init container", strings.Replace(plain, `"spec":{`, `"spec":{"initContainers":[{"name":"a","image":"a","startupProbe":{"httpGet":{"port":80}}}],`, 1), []string{"spec.initContainers[0].startupProbe: Forbidden"}},
		{"linux only, on Windows", strings.Replace(plain, `"web:1"}]`, `"web:1","securityContext":{"allowPrivilegeEscalation":false}}],"os":{"name":"windows"}`, 1), []string{"spec.containers[0].securityContext.allowPrivilegeEscalation: Forbidden"}},
		{"label", strings.Replace(plain, `"name":"web"`, `"name":"web","labels":{"a":"x y"}`, 1), []string{`metadata.labels: Invalid value: "x y"`}},
		{"ephemeral container", strings.Replace(plain, `"spec":{`, `"spec":{"ephemeralContainers":[{"name":"a","image":"a","terminationMessagePolicy":"File"}],`, 1), []string{"spec.ephemeralContainers: Forbidden: cannot be set on create"}},

		{"another kind", strings.Replace(plain, "Pod", "Service", 1), []string{"not a pod: "}},
		{"unknown kind", strings.Replace(plain, "Pod", "Pot", 1), []string{`no kind "Pot" is registered`}},
		{"wrong type", `{"spec":5}`, []string{"json: cannot unmarshal number"}},
		{"not JSON", `{"spec":`, []string{"couldn't get version/kind"}},
		{"not UTF-8", "\xff", []string{"couldn't get version/kind"}},
		{"not JSON but YAML", "metadata: {name: web}", []string{"couldn't get version/kind"}},
		{"no name of a namespace", strings.Replace(plain, `"name":"web"`, `"name":"web","namespace":"A B"`, 1), []string{`metadata.namespace: Invalid value: "A B"`}},
		{"empty", "", []string{"couldn't get version/kind"}},
		{"two", plain + "\n" + plain, []string{"couldn't get version/kind"}},
		{"after all that, plain", plain, nil},
	} {
		got := v.Errors([]byte(test.pod))
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// failing is a test that notes that it failed.
type failing struct {
	testing.TB
	log bytes.Buffer
}

func (f *failing) Error(args ...any) { fmt.Fprintln(&f.log, args...) }

// A process that ends, or talks nonsense, is no process that accepts all pods: the test fails, once.
func TestBroken(t *testing.T) {
	for name, test := range map[string]struct{ answers, want string }{
		"ended":    {"", "podvalidate: no answer: EOF"},
		"cut":      {`{"valid":tr`, "podvalidate: no answer: EOF"},
		"nonsense": {"yes\n", "podvalidate: read the answer \"yes\\n\": invalid character 'y'"},
		"neither":  {"{}\n", "podvalidate: read the answer \"{}\\n\": neither valid nor with errors"},
	} {
		f := &failing{TB: t}
		v := &Validator{t: f, input: io.Discard, answers: bufio.NewReader(strings.NewReader(`{"valid":true}` + "\n" + test.answers))}
		if got := v.Errors([]byte(plain)); len(got) > 0 {
			t.Errorf("%s: got %q before", name, got)
		}
		for range 2 {
			if got := v.Errors([]byte(plain)); len(got) != 1 || !strings.HasPrefix(got[0], test.want) {
				t.Errorf("%s: got %q, want %q", name, got, test.want)
			}
		}
		if got := strings.Count(f.log.String(), test.want); got != 1 {
			t.Errorf("%s: the test failed %d times: %s", name, got, f.log.String())
		}
	}
}
