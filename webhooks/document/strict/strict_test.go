package strict_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	sigsjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

func decode(t *testing.T, text string) any {
	t.Helper()
	var value any
	if _, err := sigsjson.UnmarshalStrict([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// The checker says something about exactly the documents that the decoder does
// not take.
func TestAgreesWithDecoder(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `null`, `{"spec":null}`, `{"spec":{"containers":null}}`, `{"spec":{"containers":[null]}}`, `{"spec":[]}`, `{"spec":""}`, `{"Spec":{}}`,
		`{"spec":{"containers":[{"name":"a","image":1}]}}`, `{"spec":{"containers":[{"tty":null}]}}`, `{"spec":{"containers":[{"tty":"true"}]}}`,
		`{"spec":{"containers":[{"ports":[{"containerPort":80}]}]}}`, `{"spec":{"containers":[{"ports":[{"containerPort":80.0}]}]}}`, `{"spec":{"containers":[{"ports":[{"containerPort":2147483648}]}]}}`,
		`{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"http"}}}]}}`, `{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":80}}}]}}`, `{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":true}}}]}}`,
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":1}}}]}}`, `{"spec":{"containers":[{"resources":{"limits":{"cpu":"1"}}}]}}`, `{"spec":{"containers":[{"resources":{"limits":{"cpu":{}}}}]}}`,
		`{"spec":{"nodeSelector":{"a":"b"}}}`, `{"spec":{"nodeSelector":{"a":1}}}`, `{"spec":{"nodeSelector":[]}}`,
		`{"metadata":{"name":"x","creationTimestamp":null}}`, `{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"}}`, `{"metadata":{"creationTimestamp":"soon"}}`, `{"metadata":{"creationTimestamp":5}}`,
		`{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}`, `{"metadata":{"generation":9007199254740993}}`, `{"metadata":{"generation":1e30}}`, `{"status":{}}`, `{"kind":"Pod","apiVersion":"v1"}`, `{"TypeMeta":{}}`, `{"ObjectMeta":{}}`,
	} {
		value := decode(t, text)
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var into corev1.Pod
		strictErrs, err := sigsjson.UnmarshalStrict(raw, &into)
		found := new(strict.Checker).Compare(reflect.TypeFor[corev1.Pod](), value, "", strict.Options{})
		if taken := err == nil && len(strictErrs) == 0; taken != (len(found) == 0) {
			t.Errorf("%s: the decoder says %v %v, the checker %v", text, strictErrs, err, found)
		}
	}
}

type document struct {
	metav1.TypeMeta `json:",inline"`

	Spec struct {
		Nested struct {
			Wanted string `json:"wanted"`
		} `json:"nested"`
		Text    string                `json:"text"`
		Number  int8                  `json:"number"`
		Natural *uint16               `json:"natural"`
		Share   float64               `json:"share"`
		Yes     bool                  `json:"yes"`
		Bytes   []byte                `json:"bytes"`
		Texts   []string              `json:"texts"`
		Labels  map[string]string     `json:"labels"`
		Time    metav1.Time           `json:"time"`
		Any     runtime.RawExtension  `json:"any"`
		Sources []corev1.VolumeSource `json:"sources"`
		Size    resource.Quantity     `json:"size"`
	} `json:"spec"`
}

func TestCompare(t *testing.T) {
	t.Parallel()
	dollar := func(text string) bool { return strings.Contains(text, "$") }
	for name, tc := range map[string]struct {
		text    string
		options strict.Options
		want    []string
	}{
		"everything fits": {
			text: `{"apiVersion":"v1","kind":"X","spec":{"text":"a","number":-128,"natural":7.0,"share":1,"yes":true,"bytes":"YQ==","texts":["a"],
				"labels":{"a":"b"},"time":"2026-01-01T00:00:00Z","any":{"x":[1]},"sources":[{"emptyDir":{}}]}}`,
		},
		"null is nothing": {text: `{"spec":{"text":null,"number":null,"texts":null,"sources":[null],"time":null}}`},
		"kinds": {
			text: `{"spec":{"text":1,"number":"1","natural":-1,"share":"x","yes":"true","bytes":"?","texts":"a","labels":[],"time":"soon","sources":{}}}`,
			want: []string{
				`spec.bytes: "?" is not base64 text`,
				`spec.labels: is a list, expected a mapping`,
				`spec.natural: "-1" is not a 16-bit integer`,
				`spec.number: "1" is a string, expected an integer (hint: remove the quotes)`,
				`spec.share: "x" is a string, expected a number`,
				`spec.sources: is a mapping, expected a list`,
				`spec.text: "1" is a number, expected a string (hint: put it in quotes)`,
				`spec.texts: "a" is a string, expected a list`,
				`spec.time: "soon" is not a time such as 2026-12-31T23:59:59Z`,
				`spec.yes: "true" is a string, expected true or false (hint: remove the quotes)`,
			},
		},
		"a boolean that was meant as text": {
			text: `{"spec":{"labels":{"a.b/c":true}}}`,
			want: []string{`spec.labels[a.b/c]: "true" is a boolean, expected a string (hint: put it in quotes: YAML reads yes, no, on, off, y and n as booleans)`},
		},
		"unknown fields": {
			text: `{"wanted":1,"spec":{"txet":1,"zzz":1,"sources":[{"emptydir":{}}]}}`,
			want: []string{
				`spec.sources[0].emptydir: unknown field (hint: did you mean "emptyDir"?)`,
				`spec.txet: unknown field (hint: did you mean "text"?)`,
				`spec.zzz: unknown field (hint: the allowed fields are any, bytes, labels, natural, nested, number, share, size, sources, text, texts, time, …)`,
				`wanted: unknown field (hint: did you mean "spec.nested.wanted"?)`,
			},
		},
		"a field by one of its words": {
			text: `{"kind":"X","spec":{"kind":"x","sources":[{"secret":{"name":"x"}},{"persistentVolumeClaim":{"name":"x"}},{"configMap":{"configMapName":"x"}},{"nfs":{"hostname":"x"}}]}}`,
			want: []string{
				`spec.kind: unknown field (hint: the allowed fields are any, bytes, labels, natural, nested, number, share, size, sources, text, texts, time, …)`,
				`spec.sources[0].secret.name: unknown field (hint: did you mean "secretName"?)`,
				`spec.sources[1].persistentVolumeClaim.name: unknown field (hint: did you mean "claimName"?)`,
				`spec.sources[2].configMap.configMapName: unknown field (hint: did you mean "name"?)`,
				`spec.sources[3].nfs.hostname: unknown field (hint: the allowed fields are path, readOnly, server)`,
			},
		},
		"quantities": {
			text: `{"spec":{"size":"64MB","sources":[{"emptyDir":{"sizeLimit":true}},{"emptyDir":{"sizeLimit":["1"]}},{"emptyDir":{"sizeLimit":64}},{"emptyDir":{"sizeLimit":"64Mi"}}]}}`,
			want: []string{
				`spec.size: "64MB" is invalid: must be a quantity such as 100m or 64Mi`,
				`spec.sources[0].emptyDir.sizeLimit: "true" is a boolean, expected a quantity such as 100m or 64Mi`,
				`spec.sources[1].emptyDir.sizeLimit: is a list, expected a quantity such as 100m or 64Mi`,
			},
		},
		"secret": {
			text:    `{"spec":{"number":"hidden","bytes":"hidden!","size":"hidden","time":"hidden"}}`,
			options: strict.Options{Secret: true},
			want: []string{
				`spec.bytes: the value is not base64 text`,
				`spec.number: the value is a string, expected an integer`,
				`spec.size: the value is invalid: must be a quantity such as 100m or 64Mi`,
				`spec.time: the value is not a time such as 2026-12-31T23:59:59Z`,
			},
		},
		"placeholders stand for any scalar": {
			text:    `{"spec":{"text":"$","number":"$","natural":"$","share":"$","yes":"$","bytes":"$","texts":["$"],"labels":{"a":"$"},"time":"$","any":"$"}}`,
			options: strict.Options{Placeholder: dollar},
		},
		"placeholders do not stand for structure": {
			text:    `{"spec":{"nested":"$","texts":"$","labels":"$","sources":["$"],"$":1,"number":"x"}}`,
			options: strict.Options{Placeholder: dollar},
			want: []string{
				`spec.$: unknown field (hint: the allowed fields are any, bytes, labels, natural, nested, number, share, size, sources, text, texts, time, …)`,
				`spec.labels: "$" is a string, expected a mapping`,
				`spec.nested: "$" is a string, expected a mapping`,
				`spec.number: "x" is a string, expected an integer`,
				`spec.sources[0]: "$" is a string, expected a mapping`,
				`spec.texts: "$" is a string, expected a list`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := new(strict.Checker).Compare(reflect.TypeFor[document](), decode(t, tc.text), "", tc.options)
			found.Sort()
			var got []string
			for _, f := range found {
				got = append(got, f.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// One checker serves several goroutines; the race detector watches.
func TestCheckerIsShared(t *testing.T) {
	t.Parallel()
	var checker strict.Checker
	value := decode(t, `{"spec":{"containers":[{"imag":"x"}]}}`)
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			found := checker.Compare(reflect.TypeFor[corev1.Pod](), value, "at", strict.Options{})
			if len(found) != 1 || found[0].Field != "at.spec.containers[0].imag" || found[0].Severity != "error" {
				t.Errorf("found %v", found)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 101)
	for _, tc := range []struct{ got, want string }{
		{strict.Member("", "a"), "a"},
		{strict.Member("a", "b"), "a.b"},
		{strict.Member("a", "b.c/d"), "a[b.c/d]"},
		{strict.Member("a", ""), "a[]"},
		{strict.Member("a", "\x1b[2J"), `a["\x1b[2J"]`},
		{strict.Member("a", long), "a." + strings.Repeat("é", 100) + "…"},
		{strict.Element("a", 10), "a[10]"},
		{strict.Cut("éa", 2), "éa"},
		{strict.Cut("éab", 2), "éa…"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %s, want %s", tc.got, tc.want)
		}
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]string{
		"": nil, "a": {"a"}, "a.b": {"a", "b"}, "a[10].b": {"a", "10", "b"}, "a[b.c/d].e": {"a", "b.c/d", "e"}, "a[0][1]": {"a", "0", "1"}, "[a.b]": {"a.b"},
	} {
		if got := strict.Steps(path); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestTypesBelow(t *testing.T) {
	t.Parallel()
	var checker strict.Checker
	spec := checker.MemberType(reflect.TypeFor[*document](), "spec")
	for name, tc := range map[string]struct{ got, want reflect.Type }{
		"embedded field":        {checker.MemberType(reflect.TypeFor[document](), "kind"), reflect.TypeFor[string]()},
		"unknown field":         {checker.MemberType(spec, "txet"), nil},
		"map":                   {checker.MemberType(checker.MemberType(spec, "labels"), "x"), reflect.TypeFor[string]()},
		"list":                  {checker.ElementType(checker.MemberType(spec, "sources")), reflect.TypeFor[corev1.VolumeSource]()},
		"what reads its JSON":   {checker.MemberType(checker.MemberType(spec, "any"), "Raw"), nil},
		"no list":               {checker.ElementType(spec), nil},
		"nothing":               {checker.MemberType(nil, "x"), nil},
		"elements of nothing":   {checker.ElementType(nil), nil},
		"a member of a text":    {checker.MemberType(checker.MemberType(spec, "text"), "x"), nil},
		"elements behind a ref": {checker.ElementType(reflect.TypeFor[*[]int8]()), reflect.TypeFor[int8]()},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %v, want %v", name, tc.got, tc.want)
		}
	}
}
