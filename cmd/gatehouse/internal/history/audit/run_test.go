package audit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

const shop = `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: prod}}}`

// mutating returns a MutatingAdmissionPolicy for ConfigMaps with its binding.
func mutating(name, operation, condition, patch string) string {
	return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: %[1]s}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [%[2]s], resources: [configmaps]}]}, reinvocationPolicy: Never,
  matchConditions: [{name: c, expression: %[3]q}], mutations: [{patchType: JSONPatch, jsonPatch: {expression: %[4]q}}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: %[1]s}, spec: {policyName: %[1]s}}`, name, operation, condition, patch)
}

func configMap(namespace, name, value string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %q, namespace: %q}, data: {a: %q}}`, name, namespace, value)
}

// TestRun has what becomes of each kind of result.
func TestRun(t *testing.T) {
	t.Parallel()
	good := policyOf("good", "configmaps", `validations: [{expression: "object.data.a == 'good'", message: must be good, name: value}]`)
	for name, tc := range map[string]struct {
		objects, documents []string
		change             func(*audit.Options)
		want               []string
		coverage           string
		skipped, unknown   []string
	}{
		"violations": {
			objects:   []string{configMap("shop", "a", "good"), configMap("shop", "b", "bad"), configMap("lab", "c", "bad")},
			documents: []string{good},
			want: []string{
				"fail ConfigMap lab/c good/validations[value]: must be good",
				"fail ConfigMap shop/b good/validations[value]: must be good",
			},
			coverage: "configmaps v1: 3",
		},
		"actions": {
			objects:   []string{configMap("shop", "b", "bad")},
			documents: []string{strings.Replace(good, "[Deny]", "[Warn]", 1), strings.Replace(strings.Replace(good, "[Deny]", "[Audit]", 1), "name: good", "name: audited", 1)},
			want: []string{
				"warn ConfigMap shop/b audited/validations[value]: must be good",
				"warn ConfigMap shop/b good/validations[value]: must be good",
			},
			coverage: "configmaps v1: 1",
		},
		"an exception": {
			objects: []string{configMap("shop", "b", "bad"), configMap("shop", "c", "bad")},
			documents: []string{
				good,
				`{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyException, metadata: {name: x, namespace: gatehouse-system}, spec: {reason: old, policies: [{name: good}], match: {names: [b]}}}`,
				`{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyException, metadata: {name: second, namespace: gatehouse-system}, spec: {reason: old, policies: [{name: good}], match: {matchConditions: [{name: who, expression: "request.userInfo.username == 'x'"}]}}}`,
			},
			want: []string{
				"skip ConfigMap shop/b good/validations[value] by gatehouse-system/x: must be good",
				`error ConfigMap shop/c good/validations[value] by gatehouse-system/second: must be good (the exception may allow this: its match condition "who" reads request.userInfo, which an audit does not know)`,
			},
			coverage: "configmaps v1: 2",
		},
		"namespaces of the cluster": {
			objects:   []string{shop, configMap("shop", "b", "bad"), `{apiVersion: v1, kind: Namespace, metadata: {name: lab}}`, configMap("lab", "c", "bad"), configMap("gone", "d", "bad")},
			documents: []string{strings.Replace(good, "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {env: prod}}, ", 1)},
			want: []string{
				`error ConfigMap gone/d /: namespace "gone" is not known, and policy "good" depends on it`,
				"fail ConfigMap shop/b good/validations[value]: must be good",
			},
			coverage: "configmaps v1: 3",
		},
		"what depends on the request": {
			objects: []string{configMap("shop", "b", "bad")},
			documents: []string{
				policyOf("who", "configmaps", `validations: [{expression: "request.userInfo.username == 'x'"}, {expression: "object.data.a == 'good'"}]`),
				policyOf("conditional", "configmaps", `matchConditions: [{name: c, expression: "request.operation == 'CREATE'"}], validations: [{expression: "false"}]`),
				strings.Replace(policyOf("updates", "configmaps", `validations: [{expression: "false"}]`), "CREATE, ", "", 1),
			},
			want:     []string{"fail ConfigMap shop/b who/validations[1]: failed expression: object.data.a == 'good'"},
			coverage: "configmaps v1: 1",
			skipped: []string{
				`AdmissionPolicy conditional : its match condition "c" reads request.operation, which an audit does not know`,
				`AdmissionPolicy updates : it does not match the creation of objects`,
				`AdmissionPolicy who validations[0]: it reads request.userInfo, which an audit does not know`,
			},
		},
		"mutating policies": {
			objects: []string{configMap("shop", "b", "bad"), configMap("shop", "c", "good")},
			documents: []string{
				good, mutating("fix", "CREATE", "object.data.a == 'bad'", `[JSONPatch{op: "replace", path: "/data/a", value: "good"}, JSONPatch{op: "add", path: "/metadata/labels", value: {"x": "y"}}]`),
				mutating("nothing", "CREATE", "true", `[JSONPatch{op: "add", path: "/data/a", value: object.data.a}]`),
				mutating("who", "CREATE", "request.userInfo.username == 'x' && oldObject == null", `[JSONPatch{op: "remove", path: "/data"}]`),
				mutating("updates", "UPDATE", "true", `[JSONPatch{op: "remove", path: "/data"}]`),
				mutating("broken", "CREATE", "object.metadata.name == 'c'", `[JSONPatch{op: "remove", path: "/none"}]`),
			},
			want: []string{
				"change ConfigMap shop/b fix/: would change /data/a, /metadata/labels",
				"fail ConfigMap shop/c broken/: JSON Patch: error in remove for path: '/none': Unable to remove nonexistent key: none: missing value",
			},
			coverage: "configmaps v1: 2",
			skipped: []string{
				`MutatingAdmissionPolicy updates : it does not match the creation of objects`,
				`MutatingAdmissionPolicy who : it reads oldObject, request.userInfo, which an audit does not know`,
			},
		},
		"what policies make of custom resources": {
			objects: []string{
				`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, namespace: shop}, spec: {size: 1}, status: {ready: true}}`,
				`{apiVersion: example.com/v1, kind: Widget, metadata: {name: b, namespace: shop}, spec: {size: -1}}`,
				`{apiVersion: example.com/v1, kind: Widget, metadata: {name: c, namespace: shop}, spec: {size: 2}}`,
			},
			documents: []string{
				`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: widgets, kind: Widget},
  versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, minimum: 0}}}, status: {type: object, properties: {ready: {type: boolean}}}}}}}]}}`,
				strings.Replace(strings.Replace(mutating("shrink", "CREATE", "object.metadata.name != 'c'", `[JSONPatch{op: "replace", path: "/spec/size", value: -1}]`), `apiGroups: [""]`, `apiGroups: [example.com]`, 1), "configmaps", "widgets", 1),
				policyOf("status", "example.com/widgets", `validations: [{expression: "has(object.status)", message: no status}]`),
			},
			want: []string{
				"fail Widget shop/a shrink/result: the API server refuses it: spec.size: invalid value: -1: spec.size in body should be greater than or equal to 0",
				"change Widget shop/a shrink/: would change /spec/size",
				"fail Widget shop/b status/validations[0]: no status",
				"fail Widget shop/c status/validations[0]: no status",
			},
			coverage: "widgets.example.com v1: 3",
		},
		"secrets by their name": {
			objects:   []string{`{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}, data: {password: aHVudGVyMg==}}`},
			documents: []string{policyOf("leak", "secrets", `validations: [{expression: "false", messageExpression: "'it is ' + object.data.password"}, {expression: "int(object.data.password) > 0", message: a number}]`)},
			want: []string{
				"fail Secret shop/s leak/validations[0]: failed expression: false",
				"fail Secret shop/s leak/validations[1]: a number",
			},
			coverage: "secrets v1: 1",
		},
		"wildcards": {
			objects: []string{
				configMap("shop", "b", "bad"), `{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}}`, `{apiVersion: v1, kind: Event, metadata: {name: e, namespace: shop}}`,
				`{apiVersion: v1, kind: Node, metadata: {name: n}}`, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}}`,
			},
			documents: []string{strings.NewReplacer(`apiGroups: [""]`, `apiGroups: ["*"]`, `resources: ["configmaps"]`, `resources: ["*"]`).Replace(policyOf("all", "configmaps", `workloadTemplates: Ignore, validations: [{expression: "false", message: "no"}]`))},
			want:      []string{"fail ConfigMap shop/b all/validations[0]: no", "fail Widget shop/w all/validations[0]: no"},
			coverage:  "configmaps v1: 1\nnamespaces v1: 0\npods v1: 0\ndeployments.apps v1: 0\nwidgets.example.com v1: 1\nclusterroles.rbac.authorization.k8s.io v1: 0",
			skipped:   []string{"AdmissionPolicy all : for Secrets: an audit reads them only for policies that name secrets, and not for wildcards"},
		},
		"unknown resources": {
			documents: []string{policyOf("gone", "example.org/gadgets", `validations: [{expression: "true"}]`), policyOf("nodes", "nodes", `validations: [{expression: "true"}]`)},
			unknown:   []string{"gadgets.example.org"},
			skipped:   []string{"AdmissionPolicy nodes : an audit does not read what it matches, because requests for it are never sent to Gatehouse"},
		},
		"the version that policies name": {
			objects:   []string{`{apiVersion: example.com/v1beta1, kind: Widget, metadata: {name: w, namespace: shop}}`},
			documents: []string{strings.Replace(policyOf("beta", "example.com/widgets", `validations: [{expression: "false", message: "no"}]`), `"*"`, "v1beta1", 1)},
			want:      []string{"fail Widget shop/w beta/validations[0]: no"},
			coverage:  "widgets.example.com v1beta1: 1",
		},
		"a version that only a policy with matchPolicy Exact names": {
			objects: []string{`{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}}`},
			documents: []string{
				strings.Replace(policyOf("a", "example.com/widgets", `validations: [{expression: "true"}]`), `"*"`, "v1", 1),
				strings.NewReplacer(`"*"`, "v1beta1", "matchConstraints: {", "matchConstraints: {matchPolicy: Exact, ").Replace(policyOf("beta", "example.com/widgets", `validations: [{expression: "false", message: "no"}]`)),
			},
			coverage: "widgets.example.com v1: 1",
			skipped:  []string{"AdmissionPolicy beta : for widgets.example.com: its matchPolicy is Exact, and an audit reads version v1"},
		},
		"templates": {
			objects: []string{`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {selector: {}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: "bad/c"}]}}}}`},
			documents: []string{
				policyOf("images", "pods", `validations: [{expression: "object.spec.containers.all(c, c.image.startsWith('good/'))", message: bad image}]`),
			},
			want:     []string{"fail Deployment shop/web images/validations[0] in spec.template: bad image"},
			coverage: "pods v1: 0\ndeployments.apps v1: 1",
		},
		"namespaces that are named": {
			objects:   []string{configMap("shop", "b", "bad"), configMap("lab", "c", "bad"), shop},
			documents: []string{good, policyOf("roles", "rbac.authorization.k8s.io/clusterroles", `validations: [{expression: "false"}]`)},
			change:    func(o *audit.Options) { o.Namespaces = []string{"shop", "missing"} },
			want:      []string{"fail ConfigMap shop/b good/validations[value]: must be good"},
			coverage:  "configmaps v1: 1", unknown: []string{`namespace "missing"`},
		},
		"a namespace that is named twice": {
			objects:   []string{configMap("shop", "b", "bad"), shop},
			documents: []string{good},
			change:    func(o *audit.Options) { o.Namespaces = []string{"shop", "shop"} },
			want:      []string{"fail ConfigMap shop/b good/validations[value]: must be good"},
			coverage:  "configmaps v1: 1",
		},
		"a namespace and a kind that is in none": {
			objects:   []string{shop},
			documents: []string{policyOf("never", "namespaces", `validations: [{expression: "false", message: "no"}]`)},
			change:    func(o *audit.Options) { o.Namespaces, o.Kinds = []string{"shop"}, []string{"Namespace"} },
			unknown:   []string{"Namespace: its objects are cluster-scoped, and --namespace audits only objects in namespaces"},
		},
		"namespaces that are excluded": {
			objects:   []string{configMap("shop", "b", "bad"), configMap("kube-system", "c", "bad")},
			documents: []string{good},
			change:    func(o *audit.Options) { o.Exclude = []string{"kube-system"} },
			want:      []string{"fail ConfigMap shop/b good/validations[value]: must be good"},
			coverage:  "configmaps v1: 1",
		},
		"params that cannot be read": {
			objects:   []string{shop, configMap("shop", "b", "bad")},
			documents: []string{good, withParams("Ignore")},
			change:    withoutParams,
			want: []string{
				"fail ConfigMap shop/b good/validations[value]: must be good",
				"error ConfigMap shop/b /: AdmissionPolicy 'limits' with binding 'limits': missing right: get configmaps",
			},
			coverage: "configmaps v1: 1",
		},
		"params that cannot be read, and nothing else": {
			objects:   []string{shop, configMap("shop", "b", "bad")},
			documents: []string{withParams("Fail")},
			change:    withoutParams,
			want:      []string{"error ConfigMap shop/b /: AdmissionPolicy 'limits' with binding 'limits': missing right: get configmaps"},
			coverage:  "configmaps v1: 1",
		},
		"Namespaces that are excluded": {
			objects:   []string{shop, `{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}`},
			documents: []string{policyOf("never", "namespaces", `validations: [{expression: "false", message: "no"}]`)},
			change:    func(o *audit.Options) { o.Exclude = []string{"kube-system"} },
			want:      []string{"fail Namespace shop never/validations[0]: no"},
			coverage:  "namespaces v1: 1",
		},
		"kinds that are named": {
			objects:   []string{configMap("shop", "b", "bad"), `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}}`},
			documents: []string{good, policyOf("never", "example.com/widgets", `validations: [{expression: "false", message: "no"}]`)},
			change:    func(o *audit.Options) { o.Kinds = []string{"Widget.example.com", "gadgets"} },
			want:      []string{"fail Widget shop/w never/validations[0]: no"},
			coverage:  "widgets.example.com v1: 1", unknown: []string{"gadgets: no active policy or profile matches this kind"},
		},
		"a policy that cannot be evaluated": {
			objects:   []string{configMap("shop", "b", "bad")},
			documents: []string{policyOf("broken", "configmaps", `validations: [{expression: "object.data.missing == 'x'", message: m}]`)},
			want:      []string{"fail ConfigMap shop/b broken/validations[0]: expression 'object.data.missing == 'x'' resulted in error: no such key: missing"},
			coverage:  "configmaps v1: 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server()
			put(t, s, tc.objects...)
			o := options(t, s, tc.documents...)
			if tc.change != nil {
				tc.change(&o)
			}
			var sink found
			out, err := audit.Run(t.Context(), o, &sink)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Join(sink.lines, "\n"), strings.Join(tc.want, "\n"); got != want {
				t.Errorf("results:\n%s\nwant:\n%s", got, want)
			}
			if got := coverage(out); got != tc.coverage {
				t.Errorf("coverage:\n%s\nwant:\n%s", got, tc.coverage)
			}
			var skipped []string
			for _, s := range out.Skipped {
				skipped = append(skipped, fmt.Sprintf("%s %s %s: %s", s.Kind, s.Policy, s.Rule, s.Reason))
			}
			if !slices.Equal(skipped, tc.skipped) {
				t.Errorf("skipped:\n%s\nwant:\n%s", strings.Join(skipped, "\n"), strings.Join(tc.skipped, "\n"))
			}
			if !slices.Equal(out.Unknown, tc.unknown) {
				t.Errorf("unknown are %q, want %q", out.Unknown, tc.unknown)
			}
			if n := s.Count("list /api/v1/namespaces"); n > 2 {
				t.Errorf("namespaces were listed %d times", n)
			}
			if n := len(s.Requests(func(r *fakeapi.Request) bool { return r.Verb == "get" && r.Resource == "namespaces" })); n > len(o.Namespaces) {
				t.Errorf("namespaces were read one by one: %d", n)
			}
		})
	}
}

const profile = `apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: shipper}
spec:
  match: {objectSelector: {matchLabels: {ship: "yes"}}}
  injection: OptOut
  template: {spec: {containers: [{name: shipper, image: "shipper:1"}]}}
`

// TestInjection has the states of pods, and policies that see them with what would be injected.
func TestInjection(t *testing.T) {
	t.Parallel()
	pod := func(name, metadata, more string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: shop, %s}, spec: {containers: [{name: app, image: "app:1"}]}%s}`, name, metadata, more)
	}
	status := func(name, revision string) string {
		return fmt.Sprintf(`annotations: {sidecar.gatehouse.dev/status: '{"profiles":[{"name":"%s","revision":"%s","containers":[]}]}'}`, name, revision)
	}
	s := server()
	put(t, s, shop,
		pod("declined", `labels: {ship: "yes"}, annotations: {sidecar.gatehouse.dev/inject: "false"}`, ""),
		pod("ended", `labels: {ship: "yes"}`, `, status: {phase: Succeeded}`),
		pod("extra", status("shipper", "x"), ""),
		pod("gone", status("deleted", "x"), ""),
		pod("missing", `labels: {ship: "yes"}`, ""),
		pod("none", "", ""),
		pod("stale", `labels: {ship: "yes"}, `+status("shipper", "x"), ""),
	)
	o := options(t, s, profile, policyOf("images", "pods", `validations: [{expression: "object.spec.containers.size() == 1", message: two}]`))
	var sink found
	out, err := audit.Run(t.Context(), o, &sink)
	if err != nil || !out.Complete {
		t.Fatal(err, out)
	}
	want := []string{
		"declined shop/declined shipper",
		"fail Pod shop/ended images/validations[0]: two",
		"extra shop/extra shipper",
		"extra shop/gone deleted",
		"fail Pod shop/missing images/validations[0]: two",
		"missing shop/missing shipper",
		"fail Pod shop/stale images/validations[0]: two",
		"stale shop/stale shipper",
	}
	got := slices.DeleteFunc(slices.Clone(sink.lines), func(line string) bool { return strings.HasPrefix(line, "warn ") })
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s\nall:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), strings.Join(sink.lines, "\n"))
	}
}

// TestFaults has API servers that fail in the middle. None of them makes an audit wait for ever, or lose an object silently.
func TestFaults(t *testing.T) {
	t.Parallel()
	const objects = 600 // several pages
	gone := func(token string) error {
		err := apierrors.NewResourceExpired("the provided continue parameter is too old")
		err.ErrStatus.Continue = token
		return err
	}
	forbidden := func(r *fakeapi.Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: r.Resource}, "", fmt.Errorf(`User "u" cannot list resource %q in API group "" at the cluster scope`, r.Resource))
	}
	const whole, part, other = "configmaps v1: 600", "configmaps v1: 20, incomplete: ", "\nwidgets.example.com v1: 1"
	at := func(numbers ...int) func(int) bool { return func(n int) bool { return slices.Contains(numbers, n) } }
	later := func(n int) bool { return n > 0 }
	with := func(err error) func(*fakeapi.Request) (any, error) {
		return func(*fakeapi.Request) (any, error) { return nil, err }
	}
	for name, tc := range map[string]struct {
		// when reports whether answer answers the list of ConfigMaps of this number, from 0, in the place of the server.
		when     func(n int) bool
		answer   func(*fakeapi.Request) (any, error)
		coverage string
		// within bounds the time that the audit takes.
		within time.Duration
	}{
		"a token that expired, with another": {at(1), with(gone("shop/object-019")), whole, 0},
		"a token that expired":               {later, with(gone("")), part + "the list expired too often (hint: give the audit a higher rate of requests)", 0},
		"429":                                {at(1, 2), with(apierrors.NewTooManyRequests("later", 7)), whole, 20 * time.Second},
		"time-outs":                          {at(1, 2), with(context.DeadlineExceeded), whole, 20 * time.Second},
		"a restart":                          {at(1, 2, 3, 4, 5), with(errors.New("connection refused")), whole, time.Minute},
		"no answers any more": {
			later, with(errors.New("connection refused")),
			part + "list configmaps: Get \"http://api.test/api/v1/configmaps?continue=shop%2Fobject-019&limit=80\": connection refused", 3 * time.Minute,
		},
		"a right that is revoked": {later, func(r *fakeapi.Request) (any, error) { return nil, forbidden(r) }, part + "missing right: list configmaps [list configmaps]", 0},
		"a definition that is deleted": {
			later, func(r *fakeapi.Request) (any, error) {
				return nil, fakeapi.Unserved(schema.GroupResource{Resource: r.Resource})
			}, part + "the API server does not serve it any more: its definition was deleted during the audit", 0,
		},
		"no list": {
			later, func(*fakeapi.Request) (any, error) {
				return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}}, nil
			}, part + "list configmaps: the answer is not a list of configmaps", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := server()
				for i := range objects {
					put(t, s, configMap("shop", fmt.Sprintf("object-%03d", i), "bad"))
				}
				put(t, s, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}}`)
				n := 0
				s.Intercept = func(r *fakeapi.Request) (any, error) {
					if r.Verb != "list" || r.Resource != "configmaps" {
						return nil, nil
					}
					n++
					if !tc.when(n - 1) {
						return nil, nil
					}
					return tc.answer(r)
				}
				o := options(t, s, policyOf("never", "configmaps", `validations: [{expression: "false"}]`), policyOf("other", "example.com/widgets", `validations: [{expression: "true"}]`))
				var sink found
				out, err := audit.Run(t.Context(), o, &sink)
				if err != nil {
					t.Fatal(err)
				}
				if got := coverage(out); got != tc.coverage+other {
					t.Errorf("got:\n%s\nwant:\n%s", got, tc.coverage+other)
				}
				if got, want := out.Complete, !strings.Contains(tc.coverage, "incomplete"); got != want {
					t.Errorf("complete: %t", got)
				}
				if took := out.Ended.Sub(out.Began); took > max(tc.within, time.Second) {
					t.Errorf("it took %s", took)
				}
				slices.Sort(sink.objects)
				if len(slices.Compact(slices.Clone(sink.objects))) != len(sink.objects) {
					t.Errorf("an object was decided twice")
				}
			})
		})
	}
}

// TestEnds has audits that end before they are complete.
func TestEnds(t *testing.T) {
	t.Parallel()
	documents := []string{policyOf("never", "configmaps", `validations: [{expression: "false"}]`), policyOf("other", "example.com/widgets", `validations: [{expression: "true"}]`)}
	fill := func(t *testing.T) *fakeapi.Server {
		s := server()
		for i := range 60 {
			put(t, s, configMap("shop", fmt.Sprintf("object-%03d", i), "bad"))
		}
		return s
	}
	const want = "configmaps v1: 20, incomplete: the audit ended before all objects were read\nwidgets.example.com v1: 0, incomplete: not read: the audit ended before"
	t.Run("by its pace", func(t *testing.T) {
		t.Parallel()
		o, stop := options(t, fill(t), documents...), errors.New("stop")
		o.Pace = func(context.Context, time.Duration) error { return stop }
		out, err := audit.Run(t.Context(), o, new(found))
		if !errors.Is(err, stop) || coverage(out) != want || out.Complete {
			t.Errorf("%v\n%s", err, coverage(out))
		}
	})
	t.Run("by its context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		o, stop := options(t, fill(t), documents...), errors.New("stop")
		o.Pace = func(context.Context, time.Duration) error { cancel(stop); return nil }
		out, err := audit.Run(ctx, o, new(found))
		if !errors.Is(err, stop) || coverage(out) != want || out.Complete {
			t.Errorf("%v\n%s", err, coverage(out))
		}
	})
	t.Run("without discovery", func(t *testing.T) {
		t.Parallel()
		s := fill(t)
		s.Intercept = func(*fakeapi.Request) (any, error) { return nil, apierrors.NewUnauthorized("who?") }
		out, err := audit.Run(t.Context(), options(t, s, documents...), new(found))
		if out != nil || err == nil || !strings.Contains(err.Error(), "discover resources") {
			t.Errorf("%v, %+v", err, out)
		}
	})
}

// slowSink is a sink that takes its time.
type slowSink struct {
	found
	takes time.Duration
}

func (s *slowSink) Object(o audit.Object) {
	time.Sleep(s.takes)
	s.found.Object(o)
}

// TestPace: pauses do not wait for the end of a page whose objects take long, and nothing that was worked is left out.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server()
		for i := range 10 {
			put(t, s, configMap("shop", fmt.Sprintf("object-%03d", i), "good"))
		}
		o := options(t, s, policyOf("ever", "configmaps", `validations: [{expression: "true"}]`))
		var paces []time.Duration
		o.Pace = func(_ context.Context, took time.Duration) error {
			paces = append(paces, took)
			time.Sleep(2 * took)
			return nil
		}
		if _, err := audit.Run(t.Context(), o, &slowSink{takes: 100 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		const stretch = 300 * time.Millisecond
		if want := []time.Duration{stretch, stretch, stretch, 100 * time.Millisecond}; !slices.Equal(paces, want) {
			t.Errorf("paces are %v, want %v", paces, want)
		}
	})
}

// withParams returns a policy that needs params.
func withParams(failurePolicy string) string {
	text := policyOf("limits", "configmaps", "failurePolicy: "+failurePolicy+`, paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "params != null", message: "no"}]`)
	return strings.Replace(text, "validationActions: [Deny], ", "", 1) + `
---
{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: limits}, spec: {
  policyName: limits, paramRef: {name: limits, namespace: shop, parameterNotFoundAction: Deny}, validationActions: [Deny]}}`
}

// unanswered are Objects that no params can be read from.
type unanswered struct{ policy.Objects }

func (unanswered) Get(schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return nil, unansweredError{}
}

// unansweredError is what a command's look-ups return.
type unansweredError struct{}

func (unansweredError) Error() string        { return "missing right: get configmaps" }
func (unansweredError) Is(target error) bool { return target == policy.ErrUnanswered }

func withoutParams(o *audit.Options) {
	lookups := o.Snapshot.Lookups()
	lookups.Objects = unanswered{o.Snapshot.Policy.Lookups().Objects}
	o.Snapshot = o.Snapshot.With(lookups)
}

// TestKnowsNamespaces: namespaces are kept once, and those that are kept are bounded.
func TestKnowsNamespaces(t *testing.T) {
	t.Parallel()
	document := strings.Replace(policyOf("never", "configmaps", `validations: [{expression: "false", message: "no"}]`), "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {env: prod}}, ", 1)
	for name, tc := range map[string]struct {
		knows bool
		// size is that of the annotations of each namespace, in bytes.
		size        int
		lists, asks int
	}{
		"the lookups know":  {knows: true, asks: 3},
		"they are read":     {lists: 1},
		"they are too much": {size: 12 << 20, lists: 1, asks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server()
			lookedUp := map[string]bool{}
			for _, namespace := range []string{"a", "b", "c"} {
				put(t, s, fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {env: prod}, annotations: {a: "%s"}}}`, namespace, strings.Repeat("x", tc.size)), configMap(namespace, "m", "v"))
			}
			o := options(t, s, document)
			o.KnowsNamespaces = tc.knows
			lookups := o.Snapshot.Lookups()
			lookups.Objects = prodNamespaces{o.Snapshot.Policy.Lookups().Objects, lookedUp}
			o.Snapshot = o.Snapshot.With(lookups)
			var sink found
			if _, err := audit.Run(t.Context(), o, &sink); err != nil || len(sink.lines) != 3 {
				t.Errorf("%v, results:\n%s", err, strings.Join(sink.lines, "\n"))
			}
			if lists := min(s.Count("list /api/v1/namespaces"), 1); lists != tc.lists || len(lookedUp) != tc.asks {
				t.Errorf("%d lists, %d look-ups", lists, len(lookedUp))
			}
		})
	}
}

// prodNamespaces are Objects that know every namespace.
type prodNamespaces struct {
	policy.Objects
	asked map[string]bool
}

func (o prodNamespaces) Namespace(name string) (*corev1.Namespace, bool) {
	o.asked[name] = true
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": "prod"}}}, true
}
