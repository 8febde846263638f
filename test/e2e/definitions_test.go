package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// definitionsKustomization is what people apply.
const definitionsKustomization = "../../manifests/crds"

// defined is a control plane with the definitions of Gatehouse, and without Gatehouse.
type defined struct {
	*cluster.Cluster
	client    dynamic.Interface
	resources map[string]schema.GroupVersionResource // by kind
}

func newDefined(t *testing.T) *defined {
	t.Helper()
	d := &defined{Cluster: cluster.New(t, cluster.Options{}), resources: map[string]schema.GroupVersionResource{}}
	var err error
	d.client, err = dynamic.NewForConfig(d.Config())
	must(t, err)
	d.run(t, "apply", "--server-side", "--kustomize", definitionsKustomization)
	all, err := crds.All()
	must(t, err)
	for _, definition := range all {
		kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
		resource, group, _ := strings.Cut(definition.GetName(), ".")
		d.resources[kind] = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: resource}
		d.run(t, "wait", "--for=condition=Established", "--timeout=30s", "customresourcedefinition/"+definition.GetName())
	}
	must(t, d.CreateNamespace(t.Context(), system, nil))
	// A kind is established a moment before the API server has it.
	for kind, resource := range d.resources {
		support.Eventually(t, "the API server serves "+kind, func() error {
			_, err := d.client.Resource(resource).List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	return d
}

// run runs kubectl and returns what it says.
func (d *defined) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	output, err := d.Kubectl(ctx, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// of is the interface for the objects of an object's kind, in its namespace.
func (d *defined) of(object *unstructured.Unstructured) dynamic.ResourceInterface {
	all := d.client.Resource(d.resources[object.GetKind()])
	if object.GetKind() == "PolicyException" || object.GetKind() == "PolicyBaseline" {
		return all.Namespace(object.GetNamespace())
	}
	return all
}

func (d *defined) create(ctx context.Context, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return d.of(object).Create(ctx, object, options)
}

// store creates an object, and returns it as it is read.
func (d *defined) store(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if namespace := object.GetNamespace(); namespace != "" {
		err := d.CreateNamespace(t.Context(), namespace, nil)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	_, err := d.create(t.Context(), object, false)
	if err != nil {
		t.Fatalf("%s/%s: %v", object.GetKind(), object.GetName(), err)
	}
	t.Cleanup(func() {
		err := d.of(object).Delete(context.WithoutCancel(t.Context()), object.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	stored, err := d.of(object).Get(t.Context(), object.GetName(), metav1.GetOptions{})
	must(t, err)
	return stored
}

// object is a document of a custom resource in YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(strings.TrimPrefix(strings.TrimSpace(text), "---\n")), &out.Object))
	if out.GetAPIVersion() == "" {
		out.SetAPIVersion("gatehouse.dev/v1alpha1")
	}
	return out
}

// TestDefinitions looks at the custom resources as people and programs see them.
func TestDefinitions(t *testing.T) {
	d := newDefined(t)
	t.Run("documents", d.testDocuments)
	t.Run("refused", d.testRefused)
	t.Run("secret", d.testNoSecretInRefusal)
	t.Run("defaults", d.testDefaults)
	t.Run("columns", d.testColumns)
	t.Run("scope column", d.testScopeColumn)
	t.Run("names", d.testNames)
	t.Run("status", d.testStatus)
	t.Run("immutable", d.testImmutable)
	t.Run("upgrade", d.testUpgrade)
}

// documentsOf are the documents of custom resources below the directories, by where they are.
func (d *defined) documentsOf(t *testing.T, roots ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	fence := regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)\n```")
	out := map[string]*unstructured.Unstructured{}
	for _, root := range roots {
		must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var texts []string
			switch filepath.Ext(path) {
			case ".yaml":
				texts = []string{string(content)}
			case ".md":
				for _, found := range fence.FindAllStringSubmatch(string(content), -1) {
					texts = append(texts, found[1])
				}
			}
			for i, text := range texts {
				for k, document := range strings.Split("\n"+text, "\n---") {
					u := &unstructured.Unstructured{}
					err := yaml.Unmarshal([]byte(document), &u.Object)
					_, ours := d.resources[u.GetKind()]
					if err == nil && ours && strings.HasPrefix(u.GetAPIVersion(), "gatehouse.dev/") {
						out[fmt.Sprintf("%s#%d.%d", path, i, k)] = u
					}
				}
			}
			return nil
		}))
	}
	return out
}

// testDocuments holds the schemas to being no stricter than the program: what it ships and documents is accepted. The
// exception are bounds of size, which hold for resources only (see testRefused): in a directory of documents nobody is whom
// memory must be kept from.
func (d *defined) testDocuments(t *testing.T) {
	all := d.documentsOf(t, "../../manifests/examples", "../../manifests/policies", "../../docs", "../../README.md", "testdata/config", "testdata/loopback")
	kinds := map[string]int{}
	for _, where := range slices.Sorted(maps.Keys(all)) {
		u := all[where]
		kinds[u.GetKind()]++
		if namespace := u.GetNamespace(); namespace != "" {
			err := d.CreateNamespace(t.Context(), namespace, nil)
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		_, err := d.create(t.Context(), u, true)
		if err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	for kind, least := range map[string]int{
		"SidecarProfile": 6, "AdmissionPolicy": 14, "AdmissionPolicyBinding": 5, "PolicyException": 4, "PolicyBaseline": 1, "TokenRevocation": 1,
	} {
		if kinds[kind] < least {
			t.Errorf("there are %d documents of kind %s, and at least %d were expected", kinds[kind], kind, least)
		}
	}
}

// withStatus gives an object a whole status, and returns it as it is read then.
func (d *defined) withStatus(t *testing.T, stored *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	status := map[string]any{
		"observedGeneration": stored.GetGeneration(),
		"conditions":         []any{condition("Ready", "True", "InUse"), condition("Compiled", "True", "Compiled"), condition("Degraded", "False", "Healthy")},
	}
	switch stored.GetKind() {
	case "SidecarProfile":
		status["pods"] = map[string]any{"matched": int64(12), "injected": int64(11), "stale": int64(3), "countedAt": now}
	case "AdmissionPolicy":
		status["audit"] = map[string]any{"violations": int64(17), "warnings": int64(0), "errors": int64(0), "exempted": int64(0), "auditedAt": now}
	case "PolicyException":
	case "PolicyBaseline":
		status["entries"] = int64(41)
	case "AccessToken":
		status["lastUsed"] = now
	case "Grant":
		status["phase"] = "Active"
	}
	stored.Object["status"] = status
	_, err := d.of(stored).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	must(t, err)
	out, err := d.of(stored).Get(t.Context(), stored.GetName(), metav1.GetOptions{})
	must(t, err)
	if len(out.GetManagedFields()) == 0 {
		t.Errorf("%s/%s has no managed fields, so nothing is said about them", out.GetKind(), out.GetName())
	}
	return out
}

func condition(kind, status, reason string) map[string]any {
	return map[string]any{
		"type": kind, "status": status, "reason": reason, "message": "a message about " + kind, "observedGeneration": int64(1),
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
}

// Objects that are as small as they can be.
const (
	smallProfile = `{kind: SidecarProfile, metadata: {name: small}, spec: {template: {metadata: {labels: {team: red}}}}}`
	smallPolicy  = `{kind: AdmissionPolicy, metadata: {name: small}, spec: {podSecurity: {level: baseline}, validationActions: [Deny],
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}}}`
	smallBinding   = `{kind: AdmissionPolicyBinding, metadata: {name: small}, spec: {policyName: small, validationActions: [Deny, Audit]}}`
	smallException = `{kind: PolicyException, metadata: {name: small, namespace: gatehouse-system}, spec: {reason: because, policies: [{name: small}], match: {namespaces: [shop]}}}`
	smallBaseline  = `{kind: PolicyBaseline, metadata: {name: small, namespace: gatehouse-system}, spec: {reason: because, expiresAt: "2036-01-01T00:00:00Z",
  rules: [{kind: AdmissionPolicy, policy: small, rule: podSecurity.hostPorts, entries: ["shop/Deployment/web@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]}]}}`
	smallToken = `{kind: AccessToken, metadata: {name: small}, spec: {expiresAt: "2036-01-01T00:00:00Z", user: {username: robot, groups: [robots]},
  sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}}`
	smallGrant      = `{kind: Grant, metadata: {name: small}, spec: {subject: {user: jane}, groups: [oncall], expiresAt: "2036-01-01T00:00:00Z"}}`
	smallRevocation = `{kind: TokenRevocation, metadata: {name: small}, spec: {user: jane, issuedBefore: "2026-01-01T00:00:00Z"}}`
)

func smallObjects() []string {
	return []string{smallProfile, smallPolicy, smallBinding, smallException, smallBaseline, smallToken, smallRevocation, smallGrant}
}

// testRefused creates what the schemas refuse, and compares the messages.
func (d *defined) testRefused(t *testing.T) {
	parameter := func(text string) string {
		return "{kind: SidecarProfile, metadata: {name: p}, spec: {parameters: [" + text + "]}}"
	}
	exception := func(policies, match, reason string) string {
		return "{kind: PolicyException, metadata: {name: p, namespace: gatehouse-system}, spec: {policies: " + policies + ", match: " + match + ", reason: " + reason + "}}"
	}
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	// Bounds are of size: n texts or objects, each other than the others, and a text of n characters.
	many := func(n int, format string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(items, ", ")
	}
	long := func(n int) string { return strings.Repeat("a", n) }
	refused := func(t *testing.T, document *unstructured.Unstructured, says string) {
		t.Helper()
		_, err := d.create(t.Context(), document, true)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the API server says\n%v\nwant in it\n%s", err, says)
		}
	}
	var table []struct {
		Name     string
		Document map[string]any
		Says     string
	}
	readTable(t, "definitions-refused.yaml", &table)
	for _, c := range table {
		t.Run(c.Name, func(t *testing.T) {
			document := &unstructured.Unstructured{Object: c.Document}
			document.SetAPIVersion("gatehouse.dev/v1alpha1")
			refused(t, document, c.Says)
		})
	}
	for name, c := range map[string]struct{ document, says string }{
		"too many policies":   {exception("["+many(65, "{name: a%d}")+"]", `{names: [a]}`, "x"), `spec.policies: Too many: 65: must have at most 64 items`},
		"too many rules":      {exception("[{name: a, rules: ["+many(65, "'validations[%d]'")+"]}]", `{names: [a]}`, "x"), `spec.policies[0].rules: Too many: 65`},
		"too many names":      {exception(`[{name: a}]`, "{names: ["+many(257, "a%d")+"]}", "x"), `spec.match.names: Too many: 257: must have at most 256 items`},
		"too many namespaces": {exception(`[{name: a}]`, "{namespaces: ["+many(257, "a%d")+"]}", "x"), `spec.match.namespaces: Too many: 257`},
		"a reason too long":   {exception(`[{name: a}]`, `{names: [a]}`, long(1025)), `spec.reason: Too long: may not be more than 1024`},
		"too many conditions": {
			exception(`[{name: a}]`, "{matchConditions: ["+many(65, "{name: a%d, expression: 'true'}")+"]}", "x"), `spec.match.matchConditions: Too many: 65`,
		},
		"a condition too long": {
			exception(`[{name: a}]`, "{matchConditions: [{name: a, expression: "+long(10241)+"}]}", "x"), `spec.match.matchConditions: Invalid value: a name may have 317 characters, and an expression 10240`,
		},
		"too many labels": {
			exception(`[{name: a}]`, "{objectSelector: {matchLabels: {"+many(65, "a%d: b")+"}}}", "x"), `spec.match.objectSelector.matchLabels: Invalid value: has too many labels, allowed are 64`,
		},
		"too many expressions about labels": {
			exception(`[{name: a}]`, "{namespaceSelector: {matchExpressions: ["+many(65, "{key: a%d, operator: Exists}")+"]}}", "x"),
			`spec.match.namespaceSelector.matchExpressions: Invalid value: has too many items, allowed are 64`,
		},
		"too many parameters": {parameter(many(257, "{name: a%d, type: string}")), `spec.parameters: Too many: 257: must have at most 256 items`},
		"too many audiences": {
			`{kind: AccessToken, metadata: {name: a}, spec: {expiresAt: "2036-01-01T00:00:00Z", user: {username: robot}, sha256: ` + hash + `, audiences: [` + many(65, "a%d") + `]}}`,
			`spec.audiences: Too many: 65`,
		},
		"a revocation's reason too long": {
			`{kind: TokenRevocation, metadata: {name: p}, spec: {user: jane, issuedBefore: "2026-01-01T00:00:00Z", reason: ` + long(1025) + `}}`, `spec.reason: Too long`,
		},
		"a revocation of two things": {
			`{kind: TokenRevocation, metadata: {name: p}, spec: {issuer: "https://a.example", tokenID: a, sessionID: b}}`, `exactly one of user, tokenID, sessionID and subject is required`,
		},
		"a token's id without an issuer": {`{kind: TokenRevocation, metadata: {name: p}, spec: {tokenID: a}}`, `issuer is required with tokenID`},
		"a session and a time": {
			`{kind: TokenRevocation, metadata: {name: p}, spec: {issuer: "https://a.example", sessionID: b, issuedBefore: "2026-01-01T00:00:00Z"}}`, `issuedBefore is required with user or subject`,
		},
	} {
		t.Run(name, func(t *testing.T) { refused(t, object(t, c.document), c.says) })
	}
	for _, text := range append(smallObjects(), `{kind: TokenRevocation, metadata: {name: session}, spec: {issuer: "https://a.example", sessionID: b}}`) {
		_, err := d.create(t.Context(), object(t, text), true)
		if err != nil {
			t.Errorf("what the others are made from is refused: %v", err)
		}
	}
}

// testNoSecretInRefusal gives a token where its hash must be: what the API server answers is read by others.
func (d *defined) testNoSecretInRefusal(t *testing.T) {
	for _, length := range []int{20, 64, 90} {
		pasted := strings.Repeat("s3cr3t", 20)[:length]
		u := object(t, smallToken)
		must(t, unstructured.SetNestedField(u.Object, pasted, "spec", "sha256"))
		_, err := d.create(t.Context(), u, true)
		if err == nil {
			t.Fatal("it is accepted")
		}
		raw, marshalErr := json.Marshal(err)
		must(t, marshalErr)
		if strings.Contains(err.Error(), pasted[:12]) || strings.Contains(string(raw), pasted[:12]) {
			t.Errorf("the refusal repeats a token of %d characters: %v", length, err)
		}
	}
}

// testDefaults compares the defaults that the API server fills in.
func (d *defined) testDefaults(t *testing.T) {
	for text, want := range map[string]string{
		`{kind: SidecarProfile, metadata: {name: defaults}, spec: {placement: {}, parameters: [{name: a, type: string}]}}`: `{"hostNetwork":"Skip","injection":"OptIn","onConflict":"Refuse","onSameName":"Refuse",` +
			`"parameters":[{"name":"a","onInvalid":"Refuse","type":"string"}],"placement":{"containers":"Last","initContainers":"First"},"podsThatEnd":"Skip"}`,
		`{kind: SidecarProfile, metadata: {name: values}, spec: {parameters: [{name: a, type: integer, default: 5, minimum: 1}, {name: b, type: boolean, default: true},
  {name: c, type: list, default: [red, blue]}, {name: d, type: quantity, default: 1.5, maximum: 2Gi}]}}`: `{"hostNetwork":"Skip","injection":"OptIn","onConflict":"Refuse","onSameName":"Refuse","parameters":[` +
			`{"default":5,"minimum":1,"name":"a","onInvalid":"Refuse","type":"integer"},{"default":true,"name":"b","onInvalid":"Refuse","type":"boolean"},` +
			`{"default":["red","blue"],"name":"c","onInvalid":"Refuse","type":"list"},{"default":1.5,"maximum":"2Gi","name":"d","onInvalid":"Refuse","type":"quantity"}],"podsThatEnd":"Skip"}`,
		smallPolicy: `{"existingViolations":"Allow","matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},` +
			`"podSecurity":{"level":"baseline","namespaceLabels":"Ignore","version":"latest"},"validationActions":["Deny"],"workloadTemplates":"Check"}`,
	} {
		stored := d.store(t, object(t, text))
		got, err := json.Marshal(stored.Object["spec"])
		must(t, err)
		if string(got) != want {
			t.Errorf("stored is\n%s\nwant\n%s", got, want)
		}
	}
}

// testColumns compares what kubectl get shows.
func (d *defined) testColumns(t *testing.T) {
	want := map[string][]string{
		"SidecarProfile":         {`NAME +READY +REASON +DEGRADED +MATCHED +INJECTED +STALE +AGE`, `small +True +InUse +False +12 +11 +3 +[0-9]+s`},
		"AdmissionPolicy":        {`NAME +READY +REASON +DEGRADED +DENY +WARN +AUDIT +VIOLATIONS +AGE`, `small +True +InUse +False +Deny +17 +[0-9]+s`},
		"AdmissionPolicyBinding": {`NAME +READY +REASON +DEGRADED +POLICY +DENY +WARN +AUDIT +AGE`, `small +True +InUse +False +small +Deny +Audit +[0-9]+s`},
		"PolicyException":        {`NAME +READY +REASON +DEGRADED +EXPIRES +AGE`, `small +True +InUse +False +[0-9]+s`},
		"PolicyBaseline":         {`NAME +READY +REASON +DEGRADED +ENTRIES +EXPIRES +AGE`, `small +True +InUse +False +41 +2036-01-01T00:00:00Z +[0-9]+s`},
		"AccessToken":            {`NAME +READY +REASON +DEGRADED +USER +SCOPE +EXPIRES +LAST USED +AGE`, `small +True +InUse +False +robot +2036-01-01T00:00:00Z +[0-9]+s +[0-9]+s`},
		"Grant":                  {`NAME +READY +REASON +DEGRADED +PHASE +USER +GROUPS +EXPIRES +AGE`, `small +True +InUse +False +Active +jane +\["oncall"\] +2036-01-01T00:00:00Z +[0-9]+s`},
		"TokenRevocation":        {`NAME +READY +REASON +DEGRADED +USER +ISSUED BEFORE +AGE`, `small +True +InUse +False +jane +2026-01-01T00:00:00Z +[0-9]+s`},
	}
	for _, text := range smallObjects() {
		u := d.withStatus(t, d.store(t, object(t, text)))
		got := d.run(t, "get", "--namespace", system, d.resources[u.GetKind()].Resource+".gatehouse.dev")
		for _, line := range want[u.GetKind()] {
			if !regexp.MustCompile(`(?m)^` + line + ` *$`).MatchString(got) {
				t.Errorf("%s: kubectl get shows\n%s\nwant a line as\n%s", u.GetKind(), got, line)
			}
		}
		if wide := d.run(t, "get", "--namespace", system, "--output", "wide", d.resources[u.GetKind()].Resource+".gatehouse.dev"); !strings.Contains(wide, "a message about Compiled") {
			t.Errorf("%s: kubectl get -o wide shows no message:\n%s", u.GetKind(), wide)
		}
	}
}

// testScopeColumn looks at what kubectl get shows of the scope of a token. The API server drops a null, and with it what may have been
// meant to narrow the token: nobody else notices.
func (d *defined) testScopeColumn(t *testing.T) {
	for name, c := range map[string]struct {
		scope any
		want  string
	}{
		"a-name": {map[string]any{"name": "view", "namespaces": []any{"shop"}}, "view"},
		"rules":  {map[string]any{"rules": []any{map[string]any{"nonResourceURLs": []any{"/metrics"}, "verbs": []any{"get"}}}}, `[{"nonResourceURLs":["/metrics"],"verbs":["get"]}]`},
		"a-null": {nil, ""},
	} {
		u := object(t, smallToken)
		u.SetName(name)
		must(t, unstructured.SetNestedField(u.Object, c.scope, "spec", "scope"))
		_, has := d.store(t, u).Object["spec"].(map[string]any)["scope"]
		if got := d.run(t, "get", "accesstokens.gatehouse.dev", name); has != (c.want != "") || !regexp.MustCompile(`robot +`+regexp.QuoteMeta(c.want)+` *2036-`).MatchString(got) {
			t.Errorf("%s: the token has a scope: %t, and kubectl get shows\n%s", name, has, got)
		}
	}
}

// testNames checks that no other resource has our short names, and that "gatehouse" lists all of ours.
func (d *defined) testNames(t *testing.T) {
	for _, text := range smallObjects() {
		d.store(t, object(t, text))
	}
	for short, resource := range map[string]string{
		"ghsp": "sidecarprofile", "ghap": "admissionpolicy", "ghapb": "admissionpolicybinding", "ghpe": "policyexception", "ghat": "accesstoken", "ghtr": "tokenrevocation", "ghg": "grant",
	} {
		if got := d.run(t, "get", "--namespace", system, short, "--output", "name"); got != resource+".gatehouse.dev/small\n" {
			t.Errorf("kubectl get %s shows %q", short, got)
		}
	}
	all := strings.Fields(d.run(t, "get", "--namespace", system, "gatehouse", "--output", "name"))
	if len(all) != len(d.resources) {
		t.Errorf("kubectl get gatehouse shows %v", all)
	}
	taken := map[string]string{}
	for line := range strings.Lines(d.run(t, "api-resources", "--no-headers", "--output", "wide")) {
		columns := strings.Fields(line)
		if len(columns) > 1 && !strings.Contains(columns[1], "/") && columns[1] != "v1" {
			for short := range strings.SplitSeq(columns[1], ",") {
				if first, twice := taken[short]; twice && first != columns[0] { // events are in two groups
					t.Errorf("%s and %s have the short name %q", first, columns[0], short)
				}
				taken[short] = columns[0]
			}
		}
	}
	if len(taken) < 20 {
		t.Errorf("kubectl api-resources shows %d short names", len(taken))
	}
}

// testStatus checks that an update of an object does not change its status, and the other way round.
func (d *defined) testStatus(t *testing.T) {
	for _, text := range smallObjects() {
		u := object(t, text)
		must(t, unstructured.SetNestedField(u.Object, int64(7), "status", "observedGeneration"))
		stored := d.store(t, u)
		if status, has := stored.Object["status"]; has {
			t.Errorf("%s: a status was created: %v", u.GetKind(), status)
		}
		stored = d.withStatus(t, stored)
		before := stored.GetGeneration()

		stored.SetLabels(map[string]string{"a": "b"})
		stored.Object["status"] = map[string]any{"observedGeneration": int64(99)}
		updated, err := d.of(stored).Update(t.Context(), stored, metav1.UpdateOptions{})
		must(t, err)
		if got, _, _ := unstructured.NestedInt64(updated.Object, "status", "observedGeneration"); got != before {
			t.Errorf("%s: an update of the object changed its status: observedGeneration is %d", u.GetKind(), got)
		}
		updated.Object["spec"] = map[string]any{}
		must(t, unstructured.SetNestedField(updated.Object, int64(5), "status", "observedGeneration"))
		updated, err = d.of(stored).UpdateStatus(t.Context(), updated, metav1.UpdateOptions{})
		must(t, err)
		if got, _, _ := unstructured.NestedInt64(updated.Object, "status", "observedGeneration"); got != 5 || updated.GetGeneration() != before ||
			(u.GetKind() != "SidecarProfile" && len(updated.Object["spec"].(map[string]any)) == 0) {
			t.Errorf("%s: an update of the status made %v", u.GetKind(), updated.Object)
		}
	}
}

// testImmutable checks that an access token cannot be changed.
func (d *defined) testImmutable(t *testing.T) {
	stored := d.store(t, object(t, smallToken))
	must(t, unstructured.SetNestedStringSlice(stored.Object, []string{"robots", "admins"}, "spec", "user", "groups"))
	_, err := d.of(stored).Update(t.Context(), stored, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "an access token does not change: delete it and issue another") {
		t.Errorf("the API server says: %v", err)
	}
}

// testUpgrade applies the definitions over those of a version before, as an upgrade does: the objects stay, and what the
// new schema says holds at once.
func (d *defined) testUpgrade(t *testing.T) {
	stored := d.store(t, object(t, smallProfile))
	const name = "sidecarprofiles.gatehouse.dev"
	all, err := crds.All()
	must(t, err)
	i := slices.IndexFunc(all, func(u *unstructured.Unstructured) bool { return u.GetName() == name })
	older := all[i]
	versions, _, err := unstructured.NestedSlice(older.Object, "spec", "versions")
	must(t, err)
	version, _ := versions[0].(map[string]any)
	unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "rollout")
	must(t, unstructured.SetNestedSlice(older.Object, versions, "spec", "versions"))
	raw, err := json.Marshal(older)
	must(t, err)
	file := filepath.Join(t.TempDir(), "older.json")
	must(t, os.WriteFile(file, raw, 0o600))
	d.run(t, "apply", "--server-side", "--filename", file)

	rollout := object(t, `{kind: SidecarProfile, metadata: {name: rollout}, spec: {rollout: {percent: 101}}}`)
	support.Eventually(t, "the older definition knows no rollout", func() error {
		_, err := d.create(t.Context(), rollout, true)
		if err == nil || !strings.Contains(err.Error(), `unknown field "spec.rollout"`) {
			return fmt.Errorf("the API server says: %w", err)
		}
		return nil
	})
	d.run(t, "apply", "--server-side", "--kustomize", definitionsKustomization)
	support.Eventually(t, "the definition is the new one", func() error {
		_, err := d.create(t.Context(), rollout, true)
		if err == nil || !strings.Contains(err.Error(), `spec.rollout.percent`) {
			return fmt.Errorf("the API server says: %w", err)
		}
		return nil
	})
	after, err := d.of(stored).Get(t.Context(), stored.GetName(), metav1.GetOptions{})
	must(t, err)
	if after.GetUID() != stored.GetUID() {
		t.Error("the object is another one after the upgrade")
	}
}
