package compile

import (
	"encoding/json"
	"math/rand"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// decoded returns a new value of JSON.
func decoded(t testing.TB, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestKeepsPower holds keepsPower against podsecurity.KeepsPower, for pods that differ in one or two places.
func TestKeepsPower(t *testing.T) {
	t.Parallel()
	const text = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}, "spec": {
 "activeDeadlineSeconds": 5, "automountServiceAccountToken": true, "hostIPC": false, "hostNetwork": true, "hostPID": true, "hostUsers": true, "shareProcessNamespace": true,
 "serviceAccountName": "x", "serviceAccount": "x", "resources": {"limits": {"cpu": "1", "gpu": "1"}}, "nodeName": "n", "tolerations": [{"key": "a"}], "nodeSelector": {"a": "b"},
 "securityContext": {"runAsUser": 0, "runAsNonRoot": false, "runAsGroup": 1, "fsGroup": 2, "sysctls": [{"name": "a", "value": "b"}, {"name": "c", "value": "d"}], "seccompProfile": {"type": "Unconfined"}, "appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}},
 "volumes": [{"name": "h", "hostPath": {"path": "/a"}}, {"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}],
 "initContainers": [{"name": "i", "image": "i", "securityContext": {"privileged": true, "runAsUser": 5}}],
 "containers": [
  {"name": "app", "image": "x", "imagePullPolicy": "Always", "command": ["a"], "args": [], "env": [{"name": "a", "value": "b"}], "volumeMounts": [{"name": "h", "mountPath": "/h"}], "volumeDevices": [{"name": "p", "devicePath": "/p"}],
   "ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81}], "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5}, "readinessProbe": {"exec": {"command": ["x"]}, "timeoutSeconds": 1},
   "resources": {"limits": {"cpu": "1", "memory": "1Gi", "gpu": "1"}, "requests": {"cpu": "1"}},
   "securityContext": {"privileged": true, "allowPrivilegeEscalation": true, "readOnlyRootFilesystem": false, "runAsNonRoot": false, "procMount": "Unmasked", "seccompProfile": {"type": "Unconfined"},
    "capabilities": {"add": ["SYS_ADMIN", "NET_ADMIN"], "drop": ["ALL"]}, "seLinuxOptions": {"type": "a"}}},
  {"name": "side", "image": "y", "resources": {}, "securityContext": {}}],
 "ephemeralContainers": [{"name": "e", "image": "e", "targetContainerName": "app"}]}}`
	p := policy.Policy{Source: "p"}
	p.Name = "p"
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"UPDATE"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}}}
	p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: keepsPower("object", "oldObject")}}
	b := policy.Binding{Source: "b"}
	b.Name, b.Spec.PolicyName, b.Spec.ValidationActions = "b", "p", []admissionregistrationv1.ValidationAction{"Deny"}
	set, err := policy.Compile(policy.Spec{Policies: []policy.Policy{p}, Bindings: []policy.Binding{b}})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[bool]int{}
	for seed := range int64(6000) {
		random := rand.New(rand.NewSource(seed))
		object, old := decoded(t, text), decoded(t, text)
		for range 1 + random.Intn(2) {
			mutatePower(random, object["spec"])
			if random.Intn(2) == 0 {
				mutatePower(random, old["spec"])
			}
		}
		req := ask(admissionv1.Update, podKind, "pods", object, old)
		want := podsecurity.KeepsPower(rawjson.Value(req.Object.Raw), rawjson.Value(req.OldObject.Raw), nil)
		d := set.Decide(t.Context(), policy.Input{Request: req, Violations: true})
		counts[want]++
		failed := d.Err != nil
		for i := range d.Violations {
			failed = failed || d.Violations[i].Outcome == policy.Failed
		}
		if got := d.Response().Allowed; got != want || failed {
			t.Fatalf("seed %d: got %v, want %v (%v %+v)\n%s\n%s", seed, got, want, d.Err, d.Violations, req.Object.Raw, req.OldObject.Raw)
		}
	}
	const least = 500
	if counts[true] < least || counts[false] < least {
		t.Error("the cases are one-sided:", counts)
	}
}

// mutatePower is mutate for one place, which gives it a value that one of its fields may have.
func mutatePower(random *rand.Rand, value any) {
	switch v := value.(type) {
	case map[string]any:
		name := sortedKeys(v)
		if len(name) == 0 {
			return
		}
		key := name[random.Intn(len(name))]
		switch inner := v[key].(type) {
		case map[string]any, []any:
			if random.Intn(6) > 0 {
				mutatePower(random, inner)
				return
			}
			delete(v, key)
		case bool:
			if v[key] = !inner; random.Intn(3) == 0 {
				delete(v, key)
			}
		case string:
			values := map[string][]string{"type": {"RuntimeDefault", "Unconfined", "Localhost"}, "procMount": {"Default", "Unmasked"}, "name": {inner, "h", "e", "other"}}[key]
			if values == nil {
				values = []string{"", "x", "ALL"}
			}
			if v[key] = values[random.Intn(len(values))]; v[key] == "" {
				delete(v, key)
			}
		default:
			if v[key] = float64(random.Intn(3)); random.Intn(3) == 0 {
				delete(v, key)
			}
		}
	case []any:
		if len(v) > 0 {
			mutatePower(random, v[random.Intn(len(v))])
		}
	}
}
