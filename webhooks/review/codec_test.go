package review_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const uid = "705ab4f5-6393-11e8-b7cc-42010a800002"

// admissionBody is what kube-apiserver 1.37 sends for a pod, with what stands
// in its members replaced.
func admissionBody(replace ...string) string {
	return strings.NewReplacer(replace...).Replace(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"` + uid + `",` +
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
		`"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},` +
		`"name":"app","namespace":"shop","operation":"CREATE",` +
		`"userInfo":{"username":"jane","uid":"u1","groups":["dev","system:authenticated"],"extra":{"example.com/team":["a","b"]}},` +
		`"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"app"},"spec":{"containers":[{"name":"a"}]}},` +
		`"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`)
}

func TestDecodeAdmission(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		admissionBody(),
		admissionBody(`["a","b"]`, `[]`),
		admissionBody(`["a","b"]`, `null`),
		admissionBody(`["dev","system:authenticated"]`, `[]`),
	} {
		got, err := review.DecodeAdmission([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		var want admissionv1.AdmissionReview
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatal(err)
		}
		want.Request.OldObject.Raw = nil // encoding/json keeps the word null
		if !reflect.DeepEqual(got.AdmissionRequest, *want.Request) {
			t.Errorf("decoded\n%+v, want\n%+v", got.AdmissionRequest, *want.Request)
		}
	}
}

// TestDecodedMemory checks that many strings, of any length, take little more memory than their text.
func TestDecodedMemory(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	const text = 4 << 20
	for _, length := range []int{100, 1 << 10, 64 << 10} {
		group := `,"` + strings.Repeat("g", length) + `"`
		body := []byte(admissionBody(`"dev"`, `"dev"`+strings.Repeat(group, text/length)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		request, err := review.DecodeAdmission(body)
		runtime.ReadMemStats(&after)
		if err != nil || len(request.UserInfo.Groups) < text/length {
			t.Fatalf("%d groups, %v", len(request.UserInfo.Groups), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 2*text {
			t.Errorf("%d bytes in strings of %d took %d", text, length, took)
		}
	}
}

func TestDecodeAdmissionRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, body, want string }{
		{"nothing", "", "invalid JSON at byte 0: unexpected end"},
		{"truncated", admissionBody()[:200], "invalid JSON at byte 200: unexpected end"},
		{"an array", "[]", "the body must be a JSON object"},
		{"an empty object", "{}", "the body must be a JSON object"},
		{"wrong kind", admissionBody(`"AdmissionReview"`, `"Pod"`), `kind: must be "AdmissionReview"`},
		{"kind is no text", admissionBody(`"AdmissionReview"`, `7`), `kind: must be "AdmissionReview"`},
		{"v1beta1", admissionBody("admission.k8s.io/v1", "admission.k8s.io/v1beta1"), `apiVersion: must be "admission.k8s.io/v1" (hint: set admissionReviewVersions: [v1] in the webhook configuration)`},
		{"another version's text is not echoed", admissionBody("admission.k8s.io/v1", "evil\\u0000"), `apiVersion: must be "admission.k8s.io/v1" (hint: set admissionReviewVersions: [v1] in the webhook configuration)`},
		{"no request", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, "request: required"},
		{"null request", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}`, "request: required"},
		{"request is no object", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":[]}`, "request: must be an object"},
		{"another case", admissionBody(`"request"`, `"Request"`), "request: required"},
		{"no UID", admissionBody(`"uid":"`+uid+`",`, ""), "request.uid: required"},
		{"empty UID", admissionBody(uid, ""), "request.uid: required"},
		{"null UID", admissionBody(`"`+uid+`"`, "null"), "request.uid: required"},
		{"UID is no text", admissionBody(`"`+uid+`"`, "7"), "request.uid: must be a string"},
		{"no resource", admissionBody(`"resource":{"group":"","version":"v1","resource":"pods"},`, ""), "request.resource: required"},
		{"no kind", admissionBody(`"request":{`, `"request":{"x":{},`, `"kind":{"group":"","version":"v1","kind":"Pod"},"resource"`, `"resource"`), "request.kind: required"},
		{"unknown operation", admissionBody("CREATE", "PATCH"), "request.operation: must be CREATE, UPDATE, DELETE or CONNECT"},
		{"object is a list", admissionBody(`"object":{`, `"object":[],"x":{`), "request.object: must be an object"},
		{"groups is a map", admissionBody(`["dev","system:authenticated"]`, `{"a":"b"}`), "request.userInfo.groups: must be an array of strings"},
		{"duplicate request", admissionBody(`"request":`, `"request":{},"request":`), `member "request" occurs twice in the review`},
		{"duplicate UID", admissionBody(`"namespace"`, `"uid":"other","namespace"`), `member "uid" occurs twice in the review`},
		{"duplicate user name", admissionBody(`"username":"jane"`, `"username":"root","username":"jane"`), `request.userInfo: must be written with each member once, but "username" occurs twice`},
		{"escaped member", admissionBody(`"uid":"`+uid, `"\u0075id":"`+uid), "the review's member names must be written without escapes"},
		{"escaped member of the user", admissionBody(`"username"`, `"user\u006eame"`), "request.userInfo: must be written without escapes in its members' names"},
		{"invalid UTF-8", admissionBody("jane", "ja\xffne"), "invalid JSON at byte 420: invalid UTF-8"},
		{"nested deeply", strings.Repeat(`{"request":`, 20_000), "invalid JSON at byte 110000: nested too deeply"},
		{"many members", `{"a":{` + strings.Repeat(`"a":1,`, 100) + `"b":1}}`, "invalid JSON at byte 384: too many members"},
		{"10 MB of quotes", strings.Repeat(`"`, 10<<20), "invalid JSON at byte 2: unexpected data after the value"},
		{"10 MB of brackets", strings.Repeat(`[`, 10<<20), "invalid JSON at byte 10000: nested too deeply"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := review.DecodeAdmission([]byte(tc.body))
			if err == nil || err.Error() != tc.want {
				t.Errorf("error is %v\nwant     %s", err, tc.want)
			}
		})
	}
}

// FuzzDecodeAdmission holds the codec against the decoder that the API
// machinery uses: what both accept they read alike.
func FuzzDecodeAdmission(f *testing.F) {
	f.Add([]byte(admissionBody()))
	f.Add([]byte(admissionBody(`"dryRun":false`, `"dryRun":true,"subResource":"exec"`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := review.DecodeAdmission(body)
		if err != nil {
			if strings.Contains(err.Error(), "\x00") || len(err.Error()) > 500 {
				t.Fatalf("error repeats the caller's text: %q", err)
			}
			return
		}
		var want admissionv1.AdmissionReview
		if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &want); err != nil {
			t.Fatalf("accepted what the API machinery refuses: %v", err)
		}
		for _, raw := range []*[]byte{&want.Request.Object.Raw, &want.Request.OldObject.Raw, &want.Request.Options.Raw} {
			if string(*raw) == "null" {
				*raw = nil
			}
		}
		gotText, _ := json.Marshal(got.AdmissionRequest)
		wantText, _ := json.Marshal(want.Request)
		if string(gotText) != string(wantText) {
			t.Fatalf("read\n%s\nas the API machinery reads\n%s", gotText, wantText)
		}
	})
}

// verify reads an answer as the API server does and returns what it makes of it.
func verify(t testing.TB, answer []byte, mutating bool) *request.AdmissionResponse {
	t.Helper()
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatalf("answer %s: %v", answer, err)
	}
	result, err := request.VerifyAdmissionResponse(uid, mutating, &r)
	if err != nil {
		t.Fatalf("the API server refuses %s: %v", answer, err)
	}
	for key := range result.AuditAnnotations {
		if problems := validation.IsQualifiedName("webhook.gatehouse.dev/" + key); len(problems) > 0 {
			t.Errorf("the API server drops the audit annotation %q: %v", key, problems)
		}
	}
	total := 0
	for _, warning := range result.Warnings {
		total += utf8.RuneCountInString(warning)
		if strings.ContainsFunc(warning, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			t.Errorf("the API server drops the warning %q", warning)
		}
	}
	if total > 4096 {
		t.Errorf("the API server cuts warnings of %d runes", total)
	}
	return result
}

func TestAppendAdmission(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		response admission.Response
		mutating bool
		check    func(*request.AdmissionResponse) error
	}{
		{"allowed", admission.Allowed("fine"), false, func(r *request.AdmissionResponse) error {
			return expect("allowed", r.Allowed, true)
		}},
		{
			"patched", admission.Patched("", jsonpatch.NewOperation("add", "/metadata/labels/a~1b", json.RawMessage(`{"a":[1]}`)),
				jsonpatch.NewOperation("remove", "/spec/x", nil), jsonpatch.NewOperation("add", "/b", "te\"xt"),
				jsonpatch.NewOperation("replace", "/c", map[string]int{"n": 1})), true,
			func(r *request.AdmissionResponse) error {
				return expect("patch", string(r.Patch), `[{"op":"add","path":"/metadata/labels/a~1b","value":{"a":[1]}},{"op":"remove","path":"/spec/x"},`+
					`{"op":"add","path":"/b","value":"te\"xt"},{"op":"replace","path":"/c","value":{"n":1}}]`)
			},
		},
		{"a refusal carries no patch", func() admission.Response {
			r := admission.Patched("", jsonpatch.NewOperation("remove", "/spec", nil))
			r.Allowed = false
			return r
		}(), true, func(r *request.AdmissionResponse) error {
			return errors.Join(expect("allowed", r.Allowed, false), expect("patch", string(r.Patch), ""))
		}},
		{"denied", admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
			Code: 422, Reason: metav1.StatusReasonInvalid, Message: "no \"x\"\nline\x00two",
		}}}, false, func(r *request.AdmissionResponse) error {
			return errors.Join(expect("allowed", r.Allowed, false), expect("code", r.Result.Code, 422),
				expect("reason", r.Result.Reason, metav1.StatusReasonInvalid), expect("message", r.Result.Message, "no \"x\"\nline two"))
		}},
		{"denied without a reason", admission.Response{}, false, func(r *request.AdmissionResponse) error {
			return errors.Join(expect("code", r.Result.Code, 403), expect("reason", r.Result.Reason, metav1.StatusReasonForbidden))
		}},
		{"warnings lose control characters", admission.Allowed("").WithWarnings("a\nb\x7fc\u0085d"), false, func(r *request.AdmissionResponse) error {
			return expect("warning", r.Warnings[0], "a b c d")
		}},
		{"audit annotations keep to qualified names", func() admission.Response {
			r := admission.Allowed("")
			r.AuditAnnotations = map[string]string{
				"profiles": "a", "policy/key": "b", "policy-key": "c", strings.Repeat("x", 80): "d", "": "e", "-": "f",
			}
			return r
		}(), false, func(r *request.AdmissionResponse) error {
			return errors.Join(expect("number", len(r.AuditAnnotations), 6), expect("profiles", r.AuditAnnotations["profiles"], "a"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			answer, err := review.AppendAdmission([]byte("before"), uid, &tc.response)
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.check(verify(t, []byte(strings.TrimPrefix(string(answer), "before")), tc.mutating)); err != nil {
				t.Error(err)
			}
		})
	}
}

func expect[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}

func TestAppendAdmissionRefusesAPatchThatIsNoJSON(t *testing.T) {
	t.Parallel()
	response := admission.Patched("", jsonpatch.NewOperation("add", "/a", make(chan int)))
	answer, err := review.AppendAdmission([]byte("before"), uid, &response)
	if err == nil || !strings.Contains(err.Error(), "patch operation 0 (add /a)") || string(answer) != "before" {
		t.Errorf("AppendAdmission = %q, %v", answer, err)
	}
}

func TestDecodeToken(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body string
		apiVersion string
		token      string
		audiences  int
		want       string
	}{
		{"v1beta1 as kube-apiserver sends it", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1","metadata":{},"spec":{"token":"t\u003c","audiences":["https://kubernetes.default.svc"]},"status":{"user":{}}}`, "authentication.k8s.io/v1beta1", "t<", 1, ""},
		{"v1", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"t"}}`, "authentication.k8s.io/v1", "t", 0, ""},
		{"unknown version", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v2","spec":{"token":"t"}}`, "", "", 0, `apiVersion: must be "authentication.k8s.io/v1" or "authentication.k8s.io/v1beta1"`},
		{"admission's version", `{"kind":"TokenReview","apiVersion":"admission.k8s.io/v1","spec":{"token":"t"}}`, "", "", 0, `apiVersion: must be "authentication.k8s.io/v1" or "authentication.k8s.io/v1beta1"`},
		{"wrong kind", `{"kind":"AdmissionReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"t"}}`, "authentication.k8s.io/v1", "", 0, `kind: must be "TokenReview"`},
		{"a review for another endpoint", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","spec":{"token":"t"}}`, "", "", 0, `kind: must be "TokenReview"`},
		{"no token", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{}}`, "authentication.k8s.io/v1", "", 0, "spec.token: required"},
		{"token is no text", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":["secret"]}}`, "authentication.k8s.io/v1", "", 0, "spec.token: must be a string"},
		{"two tokens", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"a","token":"b"}}`, "authentication.k8s.io/v1", "", 0, `member "token" occurs twice in the review`},
		{"another case", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"Token":"a"}}`, "authentication.k8s.io/v1", "", 0, "spec.token: required"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, apiVersion, err := review.DecodeToken([]byte(tc.body))
			if message := fmt.Sprint(err); tc.want == "" && err != nil || tc.want != "" && message != tc.want {
				t.Fatalf("error is %v, want %q", err, tc.want)
			}
			if apiVersion != tc.apiVersion {
				t.Errorf("apiVersion is %q, want %q", apiVersion, tc.apiVersion)
			}
			if err == nil && (got.Spec.Token != tc.token || len(got.Spec.Audiences) != tc.audiences) {
				t.Errorf("spec is %+v", got.Spec)
			}
		})
	}
}

func TestAppendToken(t *testing.T) {
	t.Parallel()
	yes := authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: []string{"api"},
		User: authenticationv1.UserInfo{Username: "jane\"", UID: "1", Groups: []string{"dev"}, Extra: map[string]authenticationv1.ExtraValue{"b": {"2"}, "a": {"1", "x"}}},
	}
	both := yes
	both.Error = "backend\ndown"
	for _, tc := range []struct {
		name, apiVersion string
		status           authenticationv1.TokenReviewStatus
		want             string
	}{
		{"yes", "authentication.k8s.io/v1beta1", yes, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1","status":{"authenticated":true,"user":{"username":"jane\"","uid":"1","groups":["dev"],"extra":{"a":["1","x"],"b":["2"]}},"audiences":["api"]}}`},
		{"no tells nothing of a user", "authentication.k8s.io/v1", authenticationv1.TokenReviewStatus{User: yes.User}, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":false,"user":{}}}`},
		{"cannot decide beats a yes", "", both, `{"status":{"authenticated":false,"user":{},"audiences":["api"],"error":"backend down"}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := review.AppendToken(nil, tc.apiVersion, &tc.status)
			if string(got) != tc.want {
				t.Errorf("answer is\n%s, want\n%s", got, tc.want)
			}
			if _, err := rawjson.Parse(got); err != nil {
				t.Error(err)
			}
		})
	}
}

// FuzzDecodeToken holds the codec against the decoder that the API machinery
// uses: what it accepts they read alike, and what it refuses it does not repeat.
func FuzzDecodeToken(f *testing.F) {
	f.Add([]byte(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1","metadata":{},"spec":{"token":"t","audiences":["a",null]},"status":{"user":{}}}`))
	f.Add([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"\ud800"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, apiVersion, err := review.DecodeToken(body)
		if apiVersion != "" && apiVersion != "authentication.k8s.io/v1" && apiVersion != "authentication.k8s.io/v1beta1" {
			t.Fatalf("apiVersion is %q", apiVersion)
		}
		if err != nil {
			return
		}
		var want authenticationv1.TokenReview
		if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &want); err != nil {
			t.Fatalf("accepted what the API machinery refuses: %v", err)
		}
		if got.Spec.Token != want.Spec.Token || strings.Join(got.Spec.Audiences, "\x00") != strings.Join(want.Spec.Audiences, "\x00") {
			t.Fatalf("read %+v, the API machinery %+v", got.Spec, want.Spec)
		}
	})
}

// FuzzAppendAdmission puts any text where policies and profiles can: the API
// server must accept the answer and drop nothing of it.
func FuzzAppendAdmission(f *testing.F) {
	f.Add("key", "value\n\x00\xff", "warning", "message")
	f.Add("a/b", strings.Repeat("ü", 500), "\u0085", strings.Repeat("x", 20<<10))
	f.Fuzz(func(t *testing.T, key, value, warning, message string) {
		response := admission.Denied(message).WithWarnings("1"+warning, "2"+value)
		response.AuditAnnotations = map[string]string{key: value, "profiles": message}
		answer, err := review.AppendAdmission(nil, uid, &response)
		if err != nil {
			t.Fatal(err)
		}
		got := verify(t, answer, false)
		if len(got.Warnings) != 2 || len(got.AuditAnnotations) != len(response.AuditAnnotations) {
			t.Fatalf("of two warnings and %d annotations there are %d and %d", len(response.AuditAnnotations), len(got.Warnings), len(got.AuditAnnotations))
		}
	})
}
