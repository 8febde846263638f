package review_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// refusal is an answer with these details, and what encoding/json reads in it.
func refusal(t testing.TB, details *metav1.StatusDetails) (answer []byte, read *metav1.StatusDetails) {
	t.Helper()
	response := admission.Denied("no")
	response.Result.Details = details
	answer, err := review.AppendAdmission(nil, uid, &response)
	if err != nil {
		t.Fatal(err)
	}
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatalf("answer %s: %v", answer, err)
	}
	if r.Response.Result.Message != "no" || r.Response.Result.Code != http.StatusForbidden {
		t.Errorf("the details change the rest of the status: %s", answer)
	}
	return answer, r.Response.Result.Details
}

// TestDetails holds the details of a refusal against encoding/json, member by
// member.
func TestDetails(t *testing.T) {
	t.Parallel()
	const odd = "a \"b\" \\ </script> & ü 🙂 \u2028"
	for _, tc := range []struct {
		name    string
		details *metav1.StatusDetails
	}{
		{"none", nil},
		{"empty", &metav1.StatusDetails{}},
		{"all", &metav1.StatusDetails{
			Name: "app", Group: "apps", Kind: "deployments", UID: "u1", RetryAfterSeconds: 7,
			Causes: []metav1.StatusCause{{Type: "validations[0]", Message: "no", Field: "spec.template"}, {Type: "podSecurity.hostPorts", Message: "no\nneither"}},
		}},
		{"odd texts", &metav1.StatusDetails{Name: odd, Group: odd, Kind: odd, UID: odd, Causes: []metav1.StatusCause{{Type: odd, Message: odd + "\n\t", Field: odd}}}},
		{"an empty cause", &metav1.StatusDetails{Causes: []metav1.StatusCause{{}}}},
		{"only a field", &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec"}}}},
		{"only a time", &metav1.StatusDetails{RetryAfterSeconds: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, got := refusal(t, tc.details); !reflect.DeepEqual(got, tc.details) {
				t.Errorf("details are %+v, want %+v", got, tc.details)
			}
		})
	}
}

// TestDetailsAreBounded wants as many causes as a message may be long, and the
// others counted.
func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	causes := func(n, runes int) []metav1.StatusCause {
		out := make([]metav1.StatusCause, n)
		for i := range out {
			out[i] = metav1.StatusCause{Type: "validations[0]", Message: strings.Repeat("ü", runes)}
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		causes []metav1.StatusCause
		shown  int
		last   string
	}{
		{"as many as may be", causes(256, 10), 256, strings.Repeat("ü", 10)},
		{"one more", causes(257, 10), 256, "… and 2 more"},
		{"very many", causes(100_000, 10), 256, "… and 99745 more"},
		{"long ones", causes(20, 8000), 3, "… and 18 more"},
		{"one that is too long", causes(1, 20<<10), 1, strings.Repeat("ü", 16<<10-1) + "…"},
		{"two that are too long", causes(2, 20<<10), 2, "… and 1 more"},
		{"a long type", []metav1.StatusCause{{Type: metav1.CauseType(strings.Repeat("x", 1<<20)), Message: "no", Field: strings.Repeat("x", 1<<20)}}, 1, "no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			long := strings.Repeat("x", 1<<20)
			answer, got := refusal(t, &metav1.StatusDetails{Name: long, Group: long, Kind: long, UID: types.UID(long), Causes: tc.causes})
			if len(got.Causes) != tc.shown || got.Causes[len(got.Causes)-1].Message != tc.last {
				t.Errorf("%d causes, the last %.40q; want %d and %.40q", len(got.Causes), got.Causes[len(got.Causes)-1].Message, tc.shown, tc.last)
			}
			if len(answer) > 96<<10 {
				t.Errorf("the answer has %d bytes", len(answer))
			}
		})
	}
}

// FuzzDetails puts any text into the details.
func FuzzDetails(f *testing.F) {
	f.Add("app", "apps", "deployments", "validations[0]", "no \"x\"\n\x00\xff", "spec.template", int32(1))
	f.Add("", "", "", "", "", "", int32(-1))
	f.Fuzz(func(t *testing.T, name, group, kind, reason, message, field string, after int32) {
		cause := metav1.StatusCause{Type: metav1.CauseType(reason), Message: message, Field: field}
		_, got := refusal(t, &metav1.StatusDetails{Name: name, Group: group, Kind: kind, RetryAfterSeconds: after, Causes: []metav1.StatusCause{cause, cause}})
		if got == nil || got.RetryAfterSeconds != after || len(got.Causes) != 2 {
			t.Fatalf("details are %+v", got)
		}
		for _, pair := range [][2]string{{got.Name, name}, {got.Group, group}, {got.Kind, kind}, {string(got.Causes[0].Type), reason}, {got.Causes[0].Message, message}, {got.Causes[0].Field, field}} {
			if len(pair[1]) <= 512 && isPlain(pair[1]) && pair[0] != pair[1] {
				t.Fatal(fmt.Errorf("%q is read as %q", pair[1], pair[0]))
			}
		}
	})
}

// isPlain reports whether a string is shown unchanged.
func isPlain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 || r == '\uFFFD' })
}
