package policy_test

import (
	"context"
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

func fuzzSeeds(f *testing.F) [][]byte {
	f.Helper()
	seeds := [][]byte{
		[]byte(`{"spec":{"cont\u0061iners":[{"name":"a"}],"containers":[]}}`),
		[]byte(`{"metadata":{"labels":{"a":"b","a":"c"}}}`),
		[]byte(`{"spec":{"volumes":[{"name":"a","secret":null,"future":{}}]},"spec":null}`),
		[]byte(`null`),
		[]byte(`{`),
	}
	for _, seed := range []string{
		plainPod, configMap, readFile(f, "testdata/pod.json"), labelled,
		`{spec: {hostNetwork: true, volumes: [{name: a}, {name: b, hostPath: {path: /}}], containers: [{name: c, env: [], securityContext: {privileged: true}}], ephemeralContainers: [null, {}]}}`,
		`{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/a: unconfined}, labels: {a: b}}, spec: {os: {name: windows}}}`,
	} {
		raw, err := yaml.YAMLToJSON([]byte(seed))
		must(f, err)
		seeds = append(seeds, raw)
	}
	return seeds
}

// FuzzReview gives Review arbitrary objects. It must answer, and what cannot be
// read must not be decided on.
func FuzzReview(f *testing.F) {
	operations := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect}
	seeds := fuzzSeeds(f)
	for i, seed := range seeds {
		f.Add(seed, seeds[(i+1)%len(seeds)], byte(i))
	}
	set := compile(f, documents(
		denyAll("selecting", "", "validationActions: [Warn], matchResources: {objectSelector: {matchLabels: {a: b}}, namespaceSelector: {matchLabels: {env: prod}}}"),
		denyAll("looking", `variables: [{name: meta, expression: "object.?metadata"}], auditAnnotations: [{key: a, valueExpression: "string(object.metadata.name)"}], `+
			`validations: [{expression: "object == oldObject", messageExpression: "string(variables.meta.?name.orValue('none'))"}, {expression: "object.spec.containers.all(c, has(c.image))"}]`, "validationActions: [Warn, Audit]"),
		labelled))
	readable := func(raw []byte) bool {
		if len(raw) == 0 || string(raw) == "null" {
			return true
		}
		value, err := rawjson.Parse(raw)
		if err != nil || value.Kind() != rawjson.Object {
			return false
		}
		_, err = value.Decode()
		return err == nil
	}
	base := review(f, plainPod)
	f.Fuzz(func(t *testing.T, object, old []byte, operation byte) {
		req := base
		req.Object.Raw, req.OldObject.Raw = object, old
		req.Operation = operations[int(operation)%len(operations)]
		response := set.Decide(context.Background(), policy.Input{Request: req}).Response()
		if _, err := json.Marshal(response); err != nil {
			t.Fatal(err)
		}
		if got := verdict(response); got != "cannot decide" && (!readable(object) || !readable(old)) {
			t.Fatalf("%s, though %q or %q cannot be read", got, object, old)
		}
	})
}
