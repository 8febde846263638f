package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	jsonpatch "gopkg.in/evanphx/json-patch.v4" // the API server's
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokenwebhook "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	profileDocument = `
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: proxy}
spec:
  match: {objectSelector: {matchLabels: {proxy: wanted}}}
  injection: OptOut
  template:
    spec:
      containers: [{name: proxy, image: example.com/proxy, args: ["<&>", "a/b~c"], ports: [{containerPort: 15001}]}]
      volumes: [{name: proxy, emptyDir: {}}]
`
	namespacedProfileDocument = `
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: namespaced}
spec:
  match:
    namespaceSelector: {matchLabels: {proxy: wanted}}
    objectSelector: {matchLabels: {namespaced: wanted}}
  injection: OptOut
  template: {spec: {containers: [{name: namespaced, image: example.com/proxy}]}}
`
	policyDocument = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: images}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  validations:
  - {expression: "object.spec.containers.all(c, c.image.startsWith('example.com/'))", message: "images come from example.com", reason: Forbidden}
  - {expression: "object.spec.containers.all(c, !c.image.contains('latest'))", messageExpression: "'no latest: ' + object.spec.containers[0].image"}
  validationActions: [Deny]
`
	warningDocument = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: names}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  auditAnnotations: [{key: name, valueExpression: "string(object.metadata.name)"}]
  validations: [{expression: "object.metadata.name != 'warned'", message: "a bad name"}]
  validationActions: [Warn, Audit]
`
)

// spec is a configuration that knows all outcomes, and the tokens that go with it by what they are.
func spec(t *testing.T) (webhooks.Spec, map[string]string) {
	t.Helper()
	var (
		s     webhooks.Spec
		read  = func(document string, into any) { must(t, yaml.UnmarshalStrict([]byte(document), into)) }
		plain = policy.AdmissionPolicy{Source: "images"}
		warn  = policy.AdmissionPolicy{Source: "names"}
	)
	for _, document := range []string{profileDocument, namespacedProfileDocument} {
		profile := sidecar.Profile{Source: "profile"}
		read(document, &profile.SidecarProfile)
		s.Sidecar.Profiles = append(s.Sidecar.Profiles, profile)
	}
	read(policyDocument, &plain.AdmissionPolicy)
	read(warningDocument, &warn.AdmissionPolicy)
	s.Policy.AdmissionPolicies = []policy.AdmissionPolicy{plain, warn}

	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s.Authn.Now = func() time.Time { return now }
	tokens := map[string]string{"foreign": "eyJhbGciOiJSUzI1NiJ9.e30.c2ln"}
	issue := func(id string, lives time.Duration, audiences ...string) {
		text, hash := authn.NewToken(id, [25]byte{byte(len(tokens))})
		tokens[id] = text
		token := authn.Token{Source: id}
		token.Name = id
		token.Spec = v1alpha1.AccessTokenSpec{
			SHA256: hash, Audiences: audiences,
			User: authenticationv1.UserInfo{Username: "jane", UID: "4711", Groups: []string{"dev", "eng"}, Extra: map[string]authenticationv1.ExtraValue{"example.org/team": {"a", "b"}}},
		}
		token.Spec.ExpiresAt.Time = now.Add(lives)
		s.Authn.Tokens = append(s.Authn.Tokens, token)
	}
	issue("plain", time.Hour)
	issue("bound", time.Hour, "vault", "registry")
	issue("expired", -time.Hour)
	tokens["wrong secret"], _ = authn.NewToken("plain", [25]byte{99})
	tokens["unknown id"], _ = authn.NewToken("unknown", [25]byte{99})
	tokens["malformed"] = tokens["plain"][:40]
	return s, tokens
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mounted is one endpoint, served in two ways.
type mounted struct {
	name  string
	codec http.Handler
	// reference is controller-runtime's own handler.
	reference http.Handler
}

// mount serves every endpoint of the table from one snapshot.
func mount(t *testing.T, s *webhooks.Snapshot) map[string]mounted {
	t.Helper()
	logf.SetLogger(logr.Discard())
	options := review.Options{
		MaxBytes: review.MaxAdmissionBytes, MaxTime: 30 * time.Second,
		InFlight: review.NewBudget(4 * review.MaxAdmissionBytes), Slots: review.NewSlots(4), Now: time.Now,
	}
	all := map[string]mounted{}
	for _, endpoint := range webhooks.Endpoints() {
		if endpoint.Access != nil {
			continue // controller-runtime has no handler for access reviews
		}
		options.Name = endpoint.Name
		m := mounted{name: endpoint.Name}
		if endpoint.Token != nil {
			decide := func(ctx context.Context, r authentication.Request) authentication.Response {
				return endpoint.Token(ctx, s, r, nil)
			}
			m.codec = review.Token(func(ctx context.Context, r *review.TokenRequest) authentication.Response {
				return decide(ctx, r.Request)
			}, options)
			m.reference = &authentication.Webhook{Handler: authentication.HandlerFunc(decide)}
		} else {
			m.codec = review.Admission(func(ctx context.Context, r *review.AdmissionRequest) admission.Response {
				return endpoint.Admission(ctx, s, webhooks.Input{Request: r.Request, Checked: true, Index: r.Index})
			}, options)
			m.reference = &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, r admission.Request) admission.Response {
				return endpoint.Admission(ctx, s, webhooks.Input{Request: r})
			})}
		}
		all[endpoint.Name] = m
	}
	return all
}

func post(t *testing.T, handler http.Handler, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?timeout=10s", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

// scheme knows what the API server sends and reads.
func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	must(t, errors.Join(admissionv1.AddToScheme(s), authenticationv1.AddToScheme(s), corev1.AddToScheme(s)))
	return s
}

// decode reads an answer as the API server does.
func decode(t *testing.T, body []byte, into runtime.Object) error {
	t.Helper()
	_, _, err := serializer.NewCodecFactory(scheme(t)).UniversalDeserializer().Decode(body, nil, into)
	return err
}

const uid = "705ab4f5-6393-11e8-b7cc-42010a800002"

// podReview is an AdmissionReview about creating a pod.
func podReview(object string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,
		"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
		"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},
		"name":"p","namespace":"shop","operation":"CREATE","userInfo":{"username":"jane","groups":["dev","system:authenticated"],"extra":{"a":["b"]}},
		"object":%s,"oldObject":null,"dryRun":true,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`, uid, object)
}

// pod is a pod's JSON text with labels and annotations, and what else its spec holds.
func pod(name, labels, annotations, image, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{%s},"annotations":{%s}},
		"spec":{"containers":[{"name":"app","image":%q}]%s}}`, name, labels, annotations, image, rest)
}

const good = "example.com/app:1"

// answer is an admission response as the API server takes it.
type answer struct {
	// unknown means that the decision could not be made.
	unknown  bool
	allowed  bool
	code     int32
	reason   string
	message  string
	warnings []string
	audit    map[string]string
	// object is what becomes of the object, "" without a patch.
	object string
}

// read puts an HTTP answer through the API server's own decoder, verification and patch library.
func read(t *testing.T, recorder *httptest.ResponseRecorder, mutating bool, object string) answer {
	t.Helper()
	if recorder.Code == http.StatusInternalServerError {
		return answer{unknown: true}
	}
	if recorder.Code != http.StatusOK {
		t.Fatalf("answered %d %s", recorder.Code, recorder.Body)
	}
	var decoded admissionv1.AdmissionReview
	err := decode(t, recorder.Body.Bytes(), &decoded)
	if err != nil {
		t.Fatalf("the API server cannot decode %s: %v", recorder.Body, err)
	}
	result, err := webhookrequest.VerifyAdmissionResponse(uid, mutating, &decoded)
	if err != nil {
		t.Fatalf("the API server refuses %s: %v", recorder.Body, err)
	}
	a := answer{allowed: result.Allowed, warnings: result.Warnings, audit: result.AuditAnnotations}
	if !result.Allowed {
		a.code, a.reason, a.message = result.Result.Code, string(result.Result.Reason), result.Result.Message
	}
	if a.code >= http.StatusInternalServerError {
		return answer{unknown: true} // how controller-runtime writes it
	}
	if !result.Allowed && len(result.Patch) > 0 {
		t.Fatalf("denied with a patch: %s", recorder.Body)
	}
	if len(result.Patch) > 0 {
		if result.PatchType != admissionv1.PatchTypeJSONPatch {
			t.Fatalf("patch type %q", result.PatchType)
		}
		patch, err := jsonpatch.DecodePatch(result.Patch)
		must(t, err)
		patched, err := patch.Apply([]byte(object))
		if err != nil {
			t.Fatalf("the patch %s does not apply: %v", result.Patch, err)
		}
		_, _, err = serializer.NewCodecFactory(scheme(t), serializer.EnableStrict).UniversalDeserializer().Decode(patched, nil, nil)
		if err != nil {
			t.Fatalf("the patched pod is none: %v", err)
		}
		a.object = string(patched)
	}
	return a
}

// Mounted in controller-runtime's own handlers, the admission endpoints answer as through our codec.
func TestAdmissionInControllerRuntime(t *testing.T) {
	s, _ := spec(t)
	snapshot, err := webhooks.Compile(s)
	must(t, err)
	endpoints := mount(t, snapshot)

	const wanted, asks, declines = `"proxy":"wanted"`, `"sidecar.gatehouse.dev/inject":"true"`, `"sidecar.gatehouse.dev/inject":"false"`
	for _, test := range []struct {
		name, endpoint, object string
		want                   answer // texts are parts; object is the image of the second container
	}{
		{"injected", "mutate", pod("p", wanted, "", good, ""), answer{allowed: true, object: "example.com/proxy", audit: map[string]string{"profiles": "proxy=applied"}}},
		{"injected, text in need of escapes", "mutate", pod("<p>\u2028", wanted, `"a":"\ud83d\ude00\u003c"`, good, ""), answer{allowed: true, object: "example.com/proxy", audit: map[string]string{"profiles": "proxy=applied"}}},
		{"declined", "mutate", pod("p", wanted, declines, good, ""), answer{allowed: true, audit: map[string]string{"profiles": "proxy=declined"}}},
		{"not selected", "mutate", pod("p", "", "", good, ""), answer{allowed: true, audit: map[string]string{"profiles": "proxy=object-not-selected"}}},
		{"asked in vain", "mutate", pod("p", "", asks, good, ""), answer{allowed: true, warnings: []string{"has no effect"}, audit: map[string]string{"profiles": "proxy=object-not-selected"}}},
		{"misspelt", "mutate", pod("p", wanted, `"sidecar.gatehouse.dev/inject":"yes"`, good, ""), answer{code: 422, reason: "Invalid", message: `"yes" is not the name of a sidecar profile`, audit: map[string]string{"profiles": "proxy=refused"}}},
		{"name taken", "mutate", pod("p", wanted, "", good, `,"initContainers":[{"name":"proxy","image":"x"}]`), answer{code: 422, reason: "Invalid", message: `spec.initContainers[0].name: "proxy"`, audit: map[string]string{"profiles": "proxy=refused"}}},
		{"namespace not known", "mutate", pod("p", `"namespaced":"wanted"`, "", good, ""), answer{unknown: true}},
		{"pod that is none", "mutate", `{"metadata":{"labels":{"proxy":"wanted"}},"spec":{"containers":7}}`, answer{unknown: true}},

		{"admitted", "validate", pod("p", "", "", good, ""), answer{allowed: true, audit: map[string]string{"names_name": "p"}}},
		{"one violation", "validate", pod("p", "", "", "evil.com/app:1", ""), answer{code: 403, reason: "Forbidden", message: "images come from example.com", audit: map[string]string{"names_name": "p"}}},
		{"two violations", "validate", pod("p", "", "", "evil.com/app:latest", ""), answer{code: 403, reason: "Forbidden", message: "2 violations:", audit: map[string]string{"names_name": "p"}}},
		{"message of an expression", "validate", pod("p", "", "", "example.com/app:latest", ""), answer{code: 422, reason: "Invalid", message: "no latest: example.com/app:latest", audit: map[string]string{"names_name": "p"}}},
		{"warned", "validate", pod("warned", "", "", good, ""), answer{allowed: true, warnings: []string{"a bad name"}, audit: map[string]string{"names_name": "warned", "validation_failure": "a bad name"}}},
		{"labels that are none", "validate", `{"metadata":{"name":"p"},"metadata":{}}`, answer{unknown: true}},
	} {
		t.Run(test.endpoint+"/"+test.name, func(t *testing.T) {
			mutating := test.endpoint == "mutate"
			codec := post(t, endpoints[test.endpoint].codec, podReview(test.object))
			got := read(t, codec, mutating, test.object)
			reference := read(t, post(t, endpoints[test.endpoint].reference, podReview(test.object)), mutating, test.object)
			compare(t, got, reference)
			test.want.check(t, got)
			if got.unknown && strings.TrimSpace(codec.Body.String()) != "cannot decide: the log of Gatehouse has the reason (hint: try again, then ask the people who operate the cluster)" {
				t.Errorf("the caller is told %q", codec.Body)
			}
			if got.object == "" {
				return
			}
			again := read(t, post(t, endpoints[test.endpoint].codec, podReview(got.object)), mutating, got.object)
			if again.object != "" || !again.allowed {
				t.Errorf("the second time: %+v, want no change", again)
			}
		})
	}
}

// compare tells where two answers differ. Two texts of one object are no difference.
func compare(t *testing.T, codec, reference answer) {
	t.Helper()
	if codec.object != "" && reference.object != "" {
		var a, b any
		must(t, json.Unmarshal([]byte(codec.object), &a))
		must(t, json.Unmarshal([]byte(reference.object), &b))
		if reflect.DeepEqual(a, b) {
			reference.object = codec.object
		}
	}
	if !reflect.DeepEqual(codec, reference) {
		t.Errorf("through our codec\n %+v\nin controller-runtime\n %+v", codec, reference)
	}
}

func (want answer) check(t *testing.T, got answer) {
	t.Helper()
	if got.unknown != want.unknown || got.allowed != want.allowed || got.code != want.code || got.reason != want.reason || !strings.Contains(got.message, want.message) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if len(got.warnings) != len(want.warnings) || len(got.warnings) > 0 && !strings.Contains(got.warnings[0], want.warnings[0]) {
		t.Errorf("got the warnings %q, want %q", got.warnings, want.warnings)
	}
	for key, value := range want.audit {
		if !strings.Contains(got.audit[key], value) {
			t.Errorf("got the audit annotations %q, want %q", got.audit, want.audit)
		}
	}
	if (got.object != "") != (want.object != "") || !strings.Contains(got.object, want.object) {
		t.Errorf("the object becomes %s, want %q in it", got.object, want.object)
	}
}

// Mounted in controller-runtime's own handler, the authentication endpoint means to an API server, by the API server's
// own client, what it means through our codec.
func TestAuthenticationInControllerRuntime(t *testing.T) {
	s, tokens := spec(t)
	snapshot, err := webhooks.Compile(s)
	must(t, err)
	endpoint := mount(t, snapshot)["authenticate"]
	mux := http.NewServeMux()
	mux.Handle("/codec", endpoint.codec)
	mux.Handle("/reference", endpoint.reference)
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	type outcome struct {
		ok       bool
		identity string
		err      string
	}
	jane := outcome{true, "jane 4711 [dev eng] map[example.org/team:[a b]]", ""}
	no, unknown := outcome{}, outcome{false, "", "unknown access token"}
	const apiServer = "https://kubernetes.default.svc"
	for _, test := range []struct {
		token, audience string
		want            outcome
	}{
		{"plain", apiServer, jane},
		{"plain", "vault", no},
		{"bound", "vault", jane},
		{"bound", apiServer, no},
		{"expired", apiServer, no},
		{"wrong secret", apiServer, no},
		{"malformed", apiServer, no},
		{"foreign", apiServer, no},
		{"unknown id", apiServer, unknown},
		// A no would be cached, and the token, once it is known, would be dead for minutes.
		{"unknown id", "vault", unknown},
	} {
		for _, version := range []string{"v1", "v1beta1"} {
			t.Run(fmt.Sprintf("%s for %s in %s", test.token, test.audience, version), func(t *testing.T) {
				for _, path := range []string{"/codec", "/reference"} {
					config := &rest.Config{Host: server.URL + path, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
					client, err := tokenwebhook.New(config, version, authenticator.Audiences{apiServer}, wait.Backoff{Steps: 1})
					must(t, err)
					ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{test.audience})
					response, ok, err := client.AuthenticateToken(ctx, tokens[test.token])
					got := outcome{ok: ok}
					if ok {
						got.identity = fmt.Sprint(response.User.GetName(), " ", response.User.GetUID(), " ", response.User.GetGroups(), " ", response.User.GetExtra())
					}
					if err != nil {
						got.err = err.Error()
					}
					if got != test.want {
						t.Errorf("%s: got %+v, want %+v", path, got, test.want)
					}
				}
			})
		}
	}
}

// running is the real program with the configuration above, and its callers.
type running struct {
	*gatehouse.Server
	certified, anybody *http.Client
}

func start(t *testing.T) *running {
	t.Helper()
	directory := t.TempDir()
	documents := filepath.Join(directory, "documents")
	must(t, os.Mkdir(documents, 0o700))
	all := strings.Join([]string{profileDocument, namespacedProfileDocument, policyDocument, warningDocument}, "---")
	must(t, os.WriteFile(filepath.Join(documents, "all.yaml"), []byte(all), 0o600))
	server, err := gatehouse.Start(t.Context(), filepath.Join(directory, "log"), "--config", documents, "--log-level", "debug",
		"--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--self-signed", "127.0.0.1", "--self-signed-dir", directory)
	must(t, err)
	t.Cleanup(server.Kill)

	ca, err := os.ReadFile(filepath.Join(directory, "ca.crt"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	certificate, err := tls.LoadX509KeyPair(filepath.Join(directory, "apiserver-client.crt"), filepath.Join(directory, "apiserver-client.key"))
	must(t, err)
	client := func(http2 bool, certificates ...tls.Certificate) *http.Client {
		transport := &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS13}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: time.Minute}
	}
	return &running{server, client(true, certificate), client(false)}
}

func (r *running) send(ctx context.Context, client *http.Client, method, endpoint, contentType string, body io.Reader) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "https://"+r.Reviews.String()+"/"+endpoint+"?timeout=10s", body)
	if err != nil {
		return 0, nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, errors.Join(err, response.Body.Close())
}

// checkAdmission holds for every answer to everything: what is no answer to this very review has no status of success,
// so that failurePolicy decides.
func checkAdmission(t *testing.T, code int, body []byte) {
	t.Helper()
	if code < 200 || code >= 300 {
		return
	}
	var decoded admissionv1.AdmissionReview
	err := decode(t, body, &decoded)
	if err != nil {
		t.Errorf("answered %d with what the API server cannot decode, %s: %v", code, body, err)
		return
	}
	_, err = webhookrequest.VerifyAdmissionResponse(types.UID(uid), true, &decoded)
	if err != nil {
		t.Errorf("answered %d with what the API server refuses: %v", code, err)
	}
}

// checkToken holds for every answer to everything that proves nothing, and is a POST: a status of success and a no, for
// the API server repeats everything else for seconds.
func checkToken(t *testing.T, code int, body []byte) {
	t.Helper()
	if code != http.StatusOK {
		t.Errorf("answered %d %.100s, want 200", code, body)
		return
	}
	var decoded authenticationv1.TokenReview
	err := decode(t, body, &decoded)
	if err != nil {
		t.Errorf("answered with what the API server cannot decode, %s: %v", body, err)
		return
	}
	if decoded.Status.Authenticated || decoded.Status.User.Username != "" || decoded.Spec.Token != "" {
		t.Errorf("answered %s", body)
	}
}

// The whole program, over TLS, answers what is no review, and lives.
func TestHostileReviews(t *testing.T) {
	r := start(t)
	valid := string(podReview(pod("p", `"proxy":"wanted"`, "", good, "")))
	const token = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"eyJhbGciOiJSUzI1NiJ9.e30.hostile"}}`
	replace := func(old, replacement string) string {
		if !strings.Contains(valid, old) {
			t.Fatalf("the valid review holds no %s", old)
		}
		return strings.Replace(valid, old, replacement, 1)
	}
	const mediaType, depth = "application/json", 200_000
	cases := []struct {
		name, method, contentType string
		body                      string
		// code is the admission endpoints' answer; 0 is any for which checkAdmission holds.
		code int
	}{
		{"valid", "POST", mediaType, valid, 200},
		{"GET", "GET", mediaType, "", 405},
		{"PUT", "PUT", mediaType, valid, 405},
		{"empty", "POST", mediaType, "", 400},
		{"space", "POST", mediaType, "   \n", 400},
		{"another media type", "POST", "application/yaml", valid, 415},
		{"no media type", "POST", "", valid, 415},
		{"cut off", "POST", mediaType, valid[:len(valid)/2], 400},
		{"cut off by one", "POST", mediaType, strings.TrimSpace(valid)[:len(valid)-1], 400},
		{"more behind", "POST", mediaType, valid + "{}", 400},
		{"byte order mark", "POST", mediaType, "\ufeff" + valid, 400},
		{"NUL", "POST", mediaType, "\x00" + valid, 400},
		{"array", "POST", mediaType, "[" + valid + "]", 400},
		{"number", "POST", mediaType, "1", 400},
		{"null", "POST", mediaType, "null", 400},
		{"wrong kind", "POST", mediaType, replace(`"kind":"AdmissionReview"`, `"kind":"AdmissionRequest"`), 400},
		{"no kind", "POST", mediaType, replace(`"kind":"AdmissionReview",`, ``), 400},
		{"no version", "POST", mediaType, replace(`"apiVersion":"admission.k8s.io/v1",`, ``), 400},
		{"old version", "POST", mediaType, replace(`admission.k8s.io/v1"`, `admission.k8s.io/v1beta1"`), 400},
		{"the other review", "POST", mediaType, token, 400},
		{"null request", "POST", mediaType, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}`, 400},
		{"no request", "POST", mediaType, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, 400},
		{"request that is none", "POST", mediaType, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":[]}`, 400},
		{"no uid", "POST", mediaType, replace(fmt.Sprintf(`"uid":%q,`, uid), ``), 400},
		{"empty uid", "POST", mediaType, replace(fmt.Sprintf(`"uid":%q,`, uid), `"uid":"",`), 400},
		{"null uid", "POST", mediaType, replace(fmt.Sprintf(`"uid":%q,`, uid), `"uid":null,`), 400},
		{"uid that is a number", "POST", mediaType, replace(fmt.Sprintf(`"uid":%q,`, uid), `"uid":1,`), 400},
		{"two uids", "POST", mediaType, replace(`"uid":`, `"uid":"another","uid":`), 400},
		{"two uids, one with an escape", "POST", mediaType, replace(`"uid":`, `"\u0075id":"another","uid":`), 400},
		{"two requests", "POST", mediaType, replace(`"request":`, `"request":{"uid":"another"},"request":`), 400},
		{"a response beside the request", "POST", mediaType, replace(`"request":`, `"response":{"uid":"another","allowed":true},"request":`), 200},
		{"no operation", "POST", mediaType, replace(`"operation":"CREATE",`, ``), 400},
		{"operation that is none", "POST", mediaType, replace(`"CREATE"`, `"create"`), 400},
		{"two objects", "POST", mediaType, replace(`"object":`, `"object":null,"object":`), 400},
		{"object that is none", "POST", mediaType, replace(`"object":{`, `"object":"`+strings.Repeat("x", 1000)+`","other":{`), 400},
		{"kind of something else", "POST", mediaType, replace(`"kind":"Pod"`, `"kind":"Secret"`), 0},
		{"resource of something else", "POST", mediaType, replace(`"resource":"pods"`, `"resource":"secrets"`), 0},
		{"two names in the object", "POST", mediaType, replace(`"metadata":{"name":"p",`, `"metadata":{"name":"p","name":"q",`), 0},
		{"two metadata in the object", "POST", mediaType, replace(`"metadata":`, `"metadata":{"labels":{}},"metadata":`), 500},
		{"not UTF-8", "POST", mediaType, replace(`"name":"p"`, "\"name\":\"\xff\xfe\""), 400},
		{"UTF-16 surrogate alone", "POST", mediaType, replace(`"name":"app"`, `"name":"\ud800"`), 0},
		{"control character", "POST", mediaType, replace(`"name":"app"`, "\"name\":\"\x01\""), 400},
		{"number beyond all", "POST", mediaType, replace(`"spec":{`, `"spec":{"priority":1e999999999,`), 0},
		{"number of many digits", "POST", mediaType, replace(`"spec":{`, `"spec":{"priority":`+strings.Repeat("9", 1<<20)+`,`), 0},
		{"deep", "POST", mediaType, replace(`"spec":{`, `"spec":{"x":`+strings.Repeat("[", depth)+strings.Repeat("]", depth)+`,`), 400},
		{"deep in the review", "POST", mediaType, replace(`"request":`, `"x":`+strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth)+`,"request":`), 400},
		{"deep and cut off", "POST", mediaType, strings.Repeat("[", depth), 400},
		{"as deep as is allowed", "POST", mediaType, replace(`"spec":{`, `"spec":{"x":`+strings.Repeat("[", 9_000)+strings.Repeat("]", 9_000)+`,`), 0},
		{"many members", "POST", mediaType, replace(`"request":`, strings.Repeat(`"x":1,`, 100_000)+`"request":`), 400},
		{"many containers", "POST", mediaType, replace(`"spec":{"containers":[`, `"spec":{"containers":[`+strings.Repeat(`{"name":"proxy"},`, 5_000)), 0},
		{"many labels", "POST", mediaType, replace(`"labels":{`, `"labels":{`+strings.Repeat(`"x":"y",`, 100_000)), 0},
		{"long name", "POST", mediaType, replace(`"name":"p"`, `"name":"`+strings.Repeat("n", 1<<20)+`"`), 0},
		{"larger than allowed", "POST", mediaType, strings.Repeat(" ", 32<<20) + valid, 413},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			for _, endpoint := range []string{"mutate", "validate"} {
				for _, client := range []*http.Client{r.anybody, r.certified} {
					code, body, err := r.send(t.Context(), client, test.method, endpoint, test.contentType, strings.NewReader(test.body))
					must(t, err)
					if test.code != 0 && code != test.code {
						t.Errorf("%s answers %d %.200s, want %d", endpoint, code, body, test.code)
					}
					checkAdmission(t, code, body)
				}
			}
			if test.code == http.StatusMethodNotAllowed {
				code, body, err := r.send(t.Context(), r.certified, test.method, "authenticate", test.contentType, nil)
				if err != nil || code != test.code {
					t.Errorf("authenticate answers %d %s, %v, want %d", code, body, err, test.code)
				}
				return
			}
			for _, client := range []*http.Client{r.anybody, r.certified} {
				code, body, err := r.send(t.Context(), client, test.method, "authenticate", test.contentType, strings.NewReader(test.body))
				must(t, err)
				checkToken(t, code, body)
			}
		})
	}

	t.Run("cut off anywhere", func(t *testing.T) {
		whole := strings.TrimSpace(valid)
		for end := 0; end < len(whole); end += 7 {
			code, body, err := r.send(t.Context(), r.certified, "POST", "mutate", mediaType, strings.NewReader(whole[:end]))
			if err != nil || code != http.StatusBadRequest {
				t.Errorf("%d bytes: answers %d %s, %v, want 400", end, code, body, err)
			}
		}
	})

	t.Run("tokens", func(t *testing.T) {
		for name, body := range map[string]string{
			"foreign":            token,
			"claims an answer":   strings.Replace(token, `"spec"`, `"status":{"authenticated":true,"user":{"username":"admin","groups":["system:masters"]}},"spec"`, 1),
			"no spec":            strings.Replace(token, `"spec"`, `"other"`, 1),
			"two specs":          strings.Replace(token, `"spec"`, `"spec":{},"spec"`, 1),
			"empty token":        strings.Replace(token, `"eyJhbGciOiJSUzI1NiJ9.e30.hostile"`, `""`, 1),
			"a megabyte":         strings.Replace(token, `"eyJhbGciOiJSUzI1NiJ9.e30.hostile"`, `"`+strings.Repeat("x", 1_000_000)+`"`, 1),
			"three megabytes":    strings.Replace(token, `"eyJhbGciOiJSUzI1NiJ9.e30.hostile"`, `"`+strings.Repeat("x", 3_000_000)+`"`, 1),
			"many audiences":     strings.Replace(token, `"spec":{`, `"spec":{"audiences":[`+strings.Repeat(`"a",`, 100_000)+`"b"],`, 1),
			"version from ahead": strings.Replace(token, "/v1", "/v7", 1),
		} {
			for _, client := range []*http.Client{r.anybody, r.certified} {
				code, answer, err := r.send(t.Context(), client, "POST", "authenticate", mediaType, strings.NewReader(body))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				checkToken(t, code, answer)
			}
		}
	})

	t.Run("many at one time", func(t *testing.T) { r.flood(t) })

	code, body, err := r.send(t.Context(), r.anybody, "POST", "mutate", mediaType, strings.NewReader(valid))
	if err != nil || code != http.StatusOK {
		t.Errorf("after all that, a valid review is answered %d %s, %v", code, body, err)
	}
	checkAdmission(t, code, body)
	log, err := os.ReadFile(r.Log())
	must(t, err)
	for _, never := range []string{"panic", "goroutine ", "e30.hostile"} {
		if bytes.Contains(log, []byte(never)) {
			t.Errorf("the log holds %q", never)
		}
	}
	if !bytes.Contains(log, []byte(`"reason":"malformed"`)) {
		t.Error("the log does not tell of malformed reviews")
	}
}

// flood sends more at one time than is held in memory: some are turned away, and memory is bounded.
func (r *running) flood(t *testing.T) {
	const (
		callers   = 3
		size      = 24 << 20
		allowance = 512 << 20 // four times what is held of bodies
	)
	bodies := map[string]string{
		"nothing but depth":  strings.Repeat("[", size),
		"nothing but quotes": `{"` + strings.Repeat(`\"`, size/2),
		"nothing but values": "[" + strings.Repeat("1,", size/2),
		"a large pod":        string(podReview(pod("p", `"proxy":"wanted"`, "", good, `,"hostname":"`+strings.Repeat(`\u003c`, size/6)+`"`))),
	}
	var group sync.WaitGroup
	for i := range callers {
		for name, body := range bodies {
			group.Go(func() {
				endpoint := []string{"mutate", "validate"}[i%2]
				code, answer, err := r.send(t.Context(), r.anybody, "POST", endpoint, "application/json", strings.NewReader(body))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if !slices.Contains([]int{http.StatusOK, http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable}, code) {
					t.Errorf("%s: %s answers %d %.100s", name, endpoint, code, answer)
				}
				checkAdmission(t, code, answer)
			})
		}
	}
	group.Wait()
	peak, err := r.PeakMemory()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Log("this system does not tell how much memory a process has used")
		return
	}
	must(t, err)
	if peak > allowance {
		t.Errorf("%d MiB of memory were used, want at most %d MiB", peak>>20, allowance>>20)
	}
}
