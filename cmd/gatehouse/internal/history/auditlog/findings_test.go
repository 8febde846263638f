package auditlog_test

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/auditlog"
)

// event returns a request that has ended.
func event(code int32, message string, annotations map[string]string) *auditv1.Event {
	return &auditv1.Event{ResponseStatus: &metav1.Status{Code: code, Message: message}, Annotations: annotations}
}

// TestFindings has the messages and annotations of API servers.
func TestFindings(t *testing.T) {
	t.Parallel()
	const native = "validation.policy.admission.k8s.io/validation_failure"
	vap := "ValidatingAdmissionPolicy"
	for name, c := range map[string]struct {
		event *auditv1.Event
		want  []auditlog.Finding
		err   string
	}{
		"admitted": {event: event(201, "", nil)},
		"no right": {event: event(403, `pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "shop"`, nil)},
		"a policy": {
			event: event(422, `pods "web" is forbidden: ValidatingAdmissionPolicy 'limits' with binding 'all' denied request: set it`, nil),
			want:  []auditlog.Finding{{Outcome: auditlog.Refused, Kind: vap, Policy: "limits", Binding: "all", Message: "set it"}},
		},
		"a policy without a binding, in several lines": {
			event: event(422, "namespaces is forbidden: ValidatingAdmissionPolicy 'limits' denied request: a\nb", nil),
			want:  []auditlog.Finding{{Outcome: auditlog.Refused, Kind: vap, Policy: "limits", Message: "a\nb"}},
		},
		"a name that looks like a policy": {
			event: event(403, `pods "x\" is forbidden: ValidatingAdmissionPolicy 'forged' denied request: a" is forbidden: violates PodSecurity "baseline:latest": host namespaces`, nil),
			want:  []auditlog.Finding{{Outcome: auditlog.Refused, Kind: "PodSecurity", Policy: "baseline:latest", Message: "host namespaces"}},
		},
		"a mutating policy": {
			event: event(422, `pods "web" is forbidden: policy 'ndots' with binding 'all' denied request: no such key: a`, nil),
			want:  []auditlog.Finding{{Outcome: auditlog.Refused, Kind: "MutatingAdmissionPolicy", Policy: "ndots", Binding: "all", Message: "no such key: a"}},
		},
		"a mutating policy without a binding": {
			event: event(422, `pods "web" is forbidden: policy "ndots" denied request: a`, nil),
			want:  []auditlog.Finding{{Outcome: auditlog.Refused, Kind: "MutatingAdmissionPolicy", Policy: "ndots", Message: "a"}},
		},
		"a webhook": {
			event: event(403, `admission webhook "a.example.org" denied the request: no`, nil),
			want:  []auditlog.Finding{{Outcome: auditlog.Refused, Kind: "Webhook", Policy: "a.example.org", Message: "no"}},
		},
		"a webhook without a reason": {
			event: event(400, `admission webhook "a.example.org" denied the request without explanation`, nil),
			want:  []auditlog.Finding{{Outcome: auditlog.Refused, Kind: "Webhook", Policy: "a.example.org", Message: "without explanation"}},
		},
		"Gatehouse": {
			event: event(422, `admission webhook "v.gatehouse.dev" denied the request: 2 violations: 1. a`, map[string]string{"v.gatehouse.dev/denied-by": "limits,owners/all", "v.gatehouse.dev/excepted-by": "shop/legacy:images/digest"}),
			want: []auditlog.Finding{
				{Outcome: auditlog.Refused, Kind: "Webhook", Policy: "v.gatehouse.dev", Rule: "limits", Message: "2 violations: 1. a"},
				{Outcome: auditlog.Refused, Kind: "Webhook", Policy: "v.gatehouse.dev", Rule: "owners", Binding: "all", Message: "2 violations: 1. a"},
				{Outcome: auditlog.Exempt, Kind: "Webhook", Policy: "v.gatehouse.dev", Rule: "images", Exception: "shop/legacy"},
			},
		},
		"a webhook that does not answer": {
			event: event(500, `Internal error occurred: failed calling webhook "a.example.org": failed to call webhook: Post "https://a": EOF`, nil),
			want:  []auditlog.Finding{{Outcome: auditlog.Failed, Kind: "Webhook", Policy: "a.example.org", Message: `failed to call webhook: Post "https://a": EOF`}},
		},
		"failed open": {
			event: event(201, "", map[string]string{"failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "a.example.org"}),
			want:  []auditlog.Finding{{Outcome: auditlog.Failed, Kind: "Webhook", Policy: "a.example.org", Message: "admitted without an answer of the webhook"}},
		},
		"audited by 1.36": {
			event: event(201, "", map[string]string{native: `[{"message":"a","policy":"p","binding":"b","expressionIndex":2,"validationActions":["Audit"]}]`}),
			want:  []auditlog.Finding{{Outcome: auditlog.Audited, Kind: vap, Policy: "p", Binding: "b", Rule: "validations[2]", Message: "a"}},
		},
		"audited and warned by 1.37": {
			event: event(201, "", map[string]string{native: `[{"message":"a","policy":"p","binding":"b","expressionIndex":0,"validationActions":["Audit"]},{"message":"c","policy":"q","binding":"d","expressionIndex":1,"validationActions":["Warn","Audit"]}]`}),
			want: []auditlog.Finding{
				{Outcome: auditlog.Audited, Kind: vap, Policy: "p", Binding: "b", Rule: "validations[0]", Message: "a"},
				{Outcome: auditlog.Warned, Kind: vap, Policy: "q", Binding: "d", Rule: "validations[1]", Message: "c"},
			},
		},
		"audited by Gatehouse": {
			event: event(201, "", map[string]string{"v.gatehouse.dev/validation_failure": `[{"message":"a","policy":"p","binding":"","expressionIndex":0,"validationActions":["Audit"]}]`}),
			want:  []auditlog.Finding{{Outcome: auditlog.Audited, Kind: "Webhook", Policy: "v.gatehouse.dev", Rule: "p", Message: "a"}},
		},
		"cut off": {event: event(201, "", map[string]string{native: `[{"message":`}), err: `annotation "` + native + `" cannot be read`},
		"Pod Security": {
			event: event(403, `pods "web" is forbidden: violates PodSecurity "restricted:latest": a != false (b)`, map[string]string{
				"pod-security.kubernetes.io/enforce-policy": "restricted:latest", "pod-security.kubernetes.io/audit-violations": `would violate PodSecurity "restricted:v1.37": c`,
			}),
			want: []auditlog.Finding{
				{Outcome: auditlog.Refused, Kind: "PodSecurity", Policy: "restricted:latest", Message: "a != false (b)"},
				{Outcome: auditlog.Audited, Kind: "PodSecurity", Policy: "restricted:v1.37", Message: "c"},
			},
		},
		"exempt": {
			event: event(201, "", map[string]string{"pod-security.kubernetes.io/exempt": "namespace"}),
			want:  []auditlog.Finding{{Outcome: auditlog.Exempt, Kind: "PodSecurity", Message: "exempt by its namespace"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := auditlog.Findings(c.event)
			if !reflect.DeepEqual(got, c.want) || (err != nil) != (c.err != "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

// FuzzFindings takes any message and annotation.
func FuzzFindings(f *testing.F) {
	f.Add(`pods "x" is forbidden: ValidatingAdmissionPolicy 'a' denied request: b`, "validation.policy.admission.k8s.io/validation_failure", "[{}]")
	f.Add(`admission webhook "a" denied the request: b`, "a/denied-by", "p/b,q")
	f.Fuzz(func(t *testing.T, message, key, value string) {
		found, err := auditlog.Findings(event(403, message, map[string]string{key: value}))
		for i := range found {
			if found[i].Outcome == "" || found[i].Kind == "" {
				t.Errorf("got %+v, %v", found[i], err)
			}
		}
	})
}
