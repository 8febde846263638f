package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
)

// admissionPolicy returns a policy for pods with one rule.
func admissionPolicy(name, expression string, more ...string) string {
	return fmt.Sprintf(`apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["v1"], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: %q, message: %s was violated}]
%s`, name, expression, name, func() string {
		if len(more) == 0 {
			return "  validationActions: [Deny]"
		}
		return strings.Join(more, "\n")
	}())
}

// mutating returns a policy that sets a label of pods, with its binding, which has the same name.
func mutating(name, label, value string, conditions ...string) string {
	condition := "true"
	if len(conditions) > 0 {
		condition = conditions[0]
	}
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["v1"], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: c, expression: %[4]q}]
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'%[2]s': '%[3]s'}}}"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}`, name, label, value, condition)
}

const (
	shop = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: shop}}`
	profile = `apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: mesh}
spec:
  injection: OptOut
  template: {spec: {containers: [{name: proxy, image: "registry.example/proxy:%s"}]}}`
	limits = `apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: shop}
data: {team: %s}`
	withParams = `  paramKind: {apiVersion: v1, kind: ConfigMap}`
	binding    = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicyBinding
metadata: {name: %[1]s-binding}
spec: {policyName: %[1]s, validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}}`
)

func pod(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"generateName":"checkout-7d9f8b6c5-","labels":{"team":"shop","pod-template-hash":"7d9f8b6c5"},`+
		`"ownerReferences":[{"controller":true,"kind":"ReplicaSet","name":"checkout-7d9f8b6c5"}]},"spec":{"containers":[{"name":"app","image":"registry.example/app:1"%s}]}}`, name, more)
}

// flip is a case of one review whose answer is compared.
type flip struct {
	name          string
	before, after string
	request       request
	// paths are further ones to redact.
	paths     []string
	changes   []replay.Change
	undecided string
	rules     []replay.Rule
}

const always, never = "true", "object.metadata.name == ''"

func flips() []flip {
	a, v, m := "AdmissionPolicy", "validations[0]", "MutatingAdmissionPolicy"
	inShop := request{namespace: "shop", object: pod("a", "")}
	mutate := request{endpoint: "mutate", namespace: "shop", object: pod("a", "")}
	withEnv := request{namespace: "shop", object: pod("a", `,"env":[{"name":"A","value":"hunter2hunter2"}]`)}
	mutateEnv := withEnv
	mutateEnv.endpoint = "mutate"
	annotated := request{namespace: "shop", object: strings.Replace(pod("a", ""), `"labels"`, `"annotations":{"my-token":"hunter2hunter2"},"labels"`, 1)}
	warn := "  validationActions: [Warn]"
	readsEnv := "object.spec.containers.all(c, !has(c.env) || c.env.all(e, !e.value.startsWith('hunter')))"
	return []flip{
		{name: "unchanged", before: admissionPolicy("p", always), after: admissionPolicy("p", always), request: inShop},
		{
			name: "newly refused", before: admissionPolicy("p", always), after: documents(admissionPolicy("p", never), admissionPolicy("q", never)), request: inShop,
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: a, Name: "p", Rule: v}, {Kind: a, Name: "q", Rule: v}},
		},
		{
			name: "newly admitted", before: documents(admissionPolicy("p", never), admissionPolicy("q", never)), after: admissionPolicy("p", always), request: inShop,
			changes: []replay.Change{replay.NewlyAdmitted}, rules: []replay.Rule{{Kind: a, Name: "p", Rule: v}, {Kind: a, Name: "q", Rule: v}},
		},
		{name: "refused by another rule", before: admissionPolicy("p", never), after: admissionPolicy("q", never), request: inShop},
		{
			name: "new warning", before: admissionPolicy("p", always), after: admissionPolicy("p", never, warn), request: inShop,
			changes: []replay.Change{replay.NewWarnings}, rules: []replay.Rule{{Kind: a, Name: "p", Rule: v}},
		},
		{name: "warning gone", before: admissionPolicy("p", never, warn), after: admissionPolicy("p", always), request: inShop},
		{
			name: "changed patch", before: fmt.Sprintf(profile, "1"), after: fmt.Sprintf(profile, "2"), request: mutate,
			changes: []replay.Change{replay.ChangedPatch}, rules: []replay.Rule{{Kind: "SidecarProfile", Name: "mesh"}},
		},
		{
			name: "another mutating policy", before: documents(mutating("a", "b", "1"), mutating("z", "z", "1")), request: mutate,
			after:   documents(mutating("a", "b", "2"), mutating("c", "c", "1"), mutating("z", "z", "1")),
			changes: []replay.Change{replay.ChangedPatch}, rules: []replay.Rule{{Kind: m, Name: "a"}, {Kind: m, Name: "c"}},
		},
		{
			name: "a mutating policy less", before: mutating("a", "b", "1"), after: shop, request: mutate,
			changes: []replay.Change{replay.ChangedPatch}, rules: []replay.Rule{{Kind: m, Name: "a"}},
		},
		{
			name: "a mutating policy that fails", before: mutating("a", "b", "1"), after: mutating("a", "b", "1", "object.metadata.none == ''"), request: mutate,
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: m, Name: "a"}},
		},
		{
			name: "a mutating policy that failed", before: mutating("a", "b", "1", "object.metadata.none == ''"), after: mutating("a", "b", "1"), request: mutate,
			changes: []replay.Change{replay.NewlyAdmitted}, rules: []replay.Rule{{Kind: m, Name: "a"}},
		},
		{
			name: "a mutating policy that makes what the API server refuses", before: mutating("a", "b", "1"), after: mutating("a", "b", "1:2"), request: mutate,
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: m, Name: "a", Rule: "result"}},
		},
		{name: "a mutating policy that made what the API server refuses", before: mutating("a", "b", "1:2"), after: mutating("a", "b", "1:2"), request: mutate},
		{name: "the same mutating policy", before: documents(mutating("a", "b", "1"), mutating("b", "b", "2")), after: documents(mutating("b", "b", "2"), mutating("a", "b", "1")), request: mutate},
		{
			name: "a mutating policy and a redacted value", before: mutating("a", "b", "1"), after: mutating("a", "b", "2"), request: mutateEnv,
			undecided: "mutating policies: the result depends on a value that is redacted in the recording",
		},
		{name: "same patch", before: fmt.Sprintf(profile, "1"), after: fmt.Sprintf(profile, "1") + "\n", request: mutate},
		{
			name: "patch appears", before: shop, after: documents(shop, fmt.Sprintf(profile, "1")), request: mutate,
			changes: []replay.Change{replay.ChangedPatch}, rules: []replay.Rule{{Kind: "SidecarProfile", Name: "mesh"}},
		},
		{
			name: "patch disappears", before: documents(shop, fmt.Sprintf(profile, "1")), after: shop, request: mutate,
			changes: []replay.Change{replay.ChangedPatch}, rules: []replay.Rule{{Kind: "SidecarProfile", Name: "mesh"}},
		},
		{
			name: "no longer decidable", before: documents(shop, admissionPolicy("p", always)), request: mutate,
			after:   strings.Replace(fmt.Sprintf(profile, "1"), "injection: OptOut", "injection: OptOut\n  match: {matchConditions: [{name: c, expression: \"pod.metadata.labels['none'] == 'x'\"}]}", 1),
			changes: []replay.Change{replay.NoLongerDecidable}, rules: []replay.Rule{{Kind: "SidecarProfile", Name: "mesh"}},
		},
		{
			name: "reads a redacted value", before: documents(shop, admissionPolicy("p", always)), after: admissionPolicy("p", readsEnv), request: withEnv,
			undecided: "AdmissionPolicy 'p': the result depends on a value that is redacted in the recording",
		},
		{
			name: "reads a redacted value and is refused all the same", before: admissionPolicy("p", always),
			after: documents(admissionPolicy("p", readsEnv), admissionPolicy("q", never)), request: withEnv,
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: a, Name: "q", Rule: v}},
		},
		{
			name: "reads a redacted annotation", before: admissionPolicy("p", always), request: annotated,
			after:     admissionPolicy("p", "object.metadata.annotations['my-token'] != 'hunter2'"),
			undecided: "AdmissionPolicy 'p': the result depends on a value that is redacted in the recording",
		},
		{
			name: "reads params that were not recorded", before: documents(shop, admissionPolicy("p", always)), request: inShop,
			after:     documents(admissionPolicy("p", "params.data.team == 'shop'", withParams), fmt.Sprintf(binding, "p")),
			undecided: "AdmissionPolicy 'p' with binding 'p-binding' reads params v1/ConfigMap shop/limits, which the recording does not hold",
		},
		{
			name: "reads params of the candidate", before: documents(shop, admissionPolicy("p", always)), request: inShop,
			after:   documents(admissionPolicy("p", "params.data.team == 'shop'", withParams), fmt.Sprintf(binding, "p"), fmt.Sprintf(limits, "bank")),
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: a, Name: "p", Rule: v}},
		},
		{
			name: "reads params that were recorded", request: inShop,
			before:  documents(shop, admissionPolicy("p", "params.data.team != 'bank'", withParams), fmt.Sprintf(binding, "p"), fmt.Sprintf(limits, "shop")),
			after:   documents(admissionPolicy("p", "params.data.team == 'bank'", withParams), fmt.Sprintf(binding, "p"), fmt.Sprintf(limits, "shop")),
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: a, Name: "p", Rule: v}},
		},
		{
			name: "params of the candidate differ from those of the recorded configuration", request: inShop,
			before:  documents(shop, admissionPolicy("p", "params.data.team == 'shop'", withParams), fmt.Sprintf(binding, "p"), fmt.Sprintf(limits, "shop")),
			after:   documents(admissionPolicy("p", "params.data.team == 'shop'", withParams), fmt.Sprintf(binding, "p"), fmt.Sprintf(limits, "bank")),
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: a, Name: "p", Rule: v}},
		},
		{
			name: "params of a kind that is not known", before: documents(shop, admissionPolicy("p", always)), request: inShop,
			after: documents(admissionPolicy("p", "params.spec.x == 1", "  paramKind: {apiVersion: example.com/v1, kind: Limits}"), fmt.Sprintf(binding, "p")),
			undecided: "AdmissionPolicy 'p' with binding 'p-binding' reads params of kind example.com/v1/Limits, which the recording does not hold " +
				"(hint: put its CustomResourceDefinition into the directory of the configuration)",
		},
		{
			name: "asks the authorizer", before: documents(shop, role, admissionPolicy("p", always)), request: inShop,
			after:     admissionPolicy("p", "authorizer.group('').resource('secrets').check('get').allowed() || object.metadata.name == ''"),
			undecided: "AdmissionPolicy 'p' asks the authorizer for an answer which the recording does not hold",
		},
		{
			name: "a variable asks the authorizer", before: documents(shop, role, admissionPolicy("p", always)), request: inShop,
			after:     admissionPolicy("p", "!variables.may", "  variables: [{name: may, expression: \"authorizer.group('').resource('secrets').check('get').allowed()\"}]", "  validationActions: [Deny]"),
			undecided: "AdmissionPolicy 'p' asks the authorizer for an answer which the recording does not hold",
		},
		{
			name: "the authorizer has answered", request: inShop,
			before:  documents(shop, role, admissionPolicy("p", "authorizer.group('').resource('pods').check('get').allowed()")),
			after:   admissionPolicy("p", "!authorizer.group('').resource('pods').check('get').allowed()"),
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: a, Name: "p", Rule: v}},
		},
		{
			name: "selects the recorded namespace", before: documents(shop, admissionPolicy("p", always)), request: inShop,
			after:   strings.Replace(admissionPolicy("p", never), "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {team: shop}}, ", 1),
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: a, Name: "p", Rule: v}},
		},
		{
			name: "a namespace of the candidate does not count", before: admissionPolicy("p", always), request: inShop,
			after:   documents(shop, strings.Replace(admissionPolicy("p", never), "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {team: shop}}, ", 1)),
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: a, Name: "p"}},
		},
		{
			name: "a patch with a redacted value", before: documents(shop, fmt.Sprintf(profile, "1")), after: documents(shop, fmt.Sprintf(profile, "1"), admissionPolicy("p", always)),
			request:   request{endpoint: "mutate", namespace: "shop", object: pod("a", `,"env":[{"name":"A","value":"registry.example/proxy:1"}]`)},
			undecided: "the patch may differ where a value is redacted in the recording",
		},
		{
			name: "an object of Gatehouse itself", before: shop, after: shop, undecided: "it is about an object of Gatehouse itself, which no policy decides on",
			request: request{group: "gatehouse.dev", kind: "AdmissionPolicy", resource: "admissionpolicies", object: `{"apiVersion":"gatehouse.dev/v1","kind":"AdmissionPolicy","metadata":{"name":"a"}}`},
		},
		{
			name: "a value that must be a boolean is redacted", paths: []string{"spec.hostNetwork"}, before: admissionPolicy("p", always),
			after: admissionPolicy("p", "true", "  podSecurity: {level: baseline, version: latest}", "  validationActions: [Deny]"), undecided: "it cannot be read where it is redacted",
			request: request{namespace: "shop", object: strings.Replace(pod("a", ""), `"spec":{`, `"spec":{"hostNetwork":true,`, 1)},
		},
		{
			name: "a profile needs a boolean that is redacted", paths: []string{"spec.hostNetwork"}, before: admissionPolicy("p", always),
			after:     strings.Replace(fmt.Sprintf(profile, "1"), "injection: OptOut", "injection: OptOut\n  match: {matchConditions: [{name: c, expression: '!has(pod.spec.hostNetwork) || !pod.spec.hostNetwork'}]}", 1),
			undecided: "sidecar profiles: the result depends on a value that is redacted in the recording",
			request:   request{endpoint: "mutate", namespace: "shop", object: strings.Replace(pod("a", ""), `"spec":{`, `"spec":{"hostNetwork":true,`, 1)},
		},
		{
			name: "Pod Security reads a string that is redacted", paths: []string{"spec.securityContext.seLinuxOptions.type"}, before: admissionPolicy("p", always),
			after:     admissionPolicy("p", "true", "  podSecurity: {level: baseline, version: latest}", "  validationActions: [Deny]"),
			undecided: "podSecurity: the result depends on a value that is redacted in the recording",
			request:   request{namespace: "shop", object: strings.Replace(pod("a", ""), `"spec":{`, `"spec":{"securityContext":{"seLinuxOptions":{"type":"container_t"}},`, 1)},
		},
		{
			name: "a rule needs a boolean that is redacted", paths: []string{"spec.hostNetwork"}, before: admissionPolicy("p", "!object.spec.hostNetwork || true"),
			after:     admissionPolicy("p", "!object.spec.hostNetwork", "  validationActions: [Deny]\n  failurePolicy: Ignore"),
			undecided: "AdmissionPolicy 'p': the result depends on a value that is redacted in the recording",
			request:   request{namespace: "shop", object: strings.Replace(pod("a", ""), `"spec":{`, `"spec":{"hostNetwork":true,`, 1)},
		},
		{
			name: "a rule fails on a request with redacted values", before: admissionPolicy("p", always), request: withEnv,
			after:   admissionPolicy("p", "object.metadata.labels.none == 'x'"),
			changes: []replay.Change{replay.NewlyRefused}, rules: []replay.Rule{{Kind: a, Name: "p", Rule: v}},
		},
	}
}

const role = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: anna}]`

// TestFlips replays one review under another configuration.
func TestFlips(t *testing.T) {
	t.Parallel()
	for _, tt := range flips() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.before, tt.paths...)
			s.answer(tt.request)
			report, all := run(t, replay.Options{Sources: s.recording(), Candidate: load(t, tt.after)})
			if len(all) != 1 || len(report.Problems) > 0 {
				t.Fatalf("%d results, problems %q", len(all), report.Problems)
			}
			r := all[0]
			if !slices.Equal(r.Changes, tt.changes) || !strings.HasPrefix(r.Undecided, tt.undecided) || tt.undecided == "" && r.Undecided != "" || !slices.Equal(r.Rules, tt.rules) {
				t.Errorf("changes %q, undecided %q, rules %+v; want %q, %q, %+v; before %+v, after %+v",
					r.Changes, r.Undecided, r.Rules, tt.changes, tt.undecided, tt.rules, r.Before, r.After)
			}
			if len(r.Changes) > 0 && (r.Review.Workload != "Deployment/checkout" || r.Before == nil || r.After == nil) {
				t.Errorf("workload %q, before %v, after %v", r.Review.Workload, r.Before, r.After)
			}
			_, all = run(t, replay.Options{Sources: sources(t, s.dir), Candidate: replay.Recorded()})
			if len(all[0].Changes) > 0 {
				t.Errorf("under the recorded configuration: %+v", all[0])
			}
		})
	}
}
