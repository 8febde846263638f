package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// missingParam is what Gatehouse adds to upstream's message about a param that does not exist.
var missingParam = regexp.MustCompile(`: there is no .* \(hint: create it\)`)

// The API server enforces the documents in one of these namespaces, and Gatehouse in the other: the bindings select a
// label, and each side is told of it for its own namespace alone. Params that both share are in the third.
const (
	nativeNamespace = "upstream-native"
	ownNamespace    = "upstream-own"
	sharedNamespace = "upstream-shared"
)

// comparedRequest is a request that is made in both namespaces.
type comparedRequest struct {
	Name    string
	Refused bool
	// Prepare are the requests that create what this one needs.
	Prepare []apiRequest
	apiRequest
}

// verdict is what a client receives. The name of the namespace is replaced.
type verdict struct {
	refused bool
	code    int32
	reason  metav1.StatusReason
	// message is about the first violation alone, as that of the API server itself.
	message  string
	warnings string
}

// decide makes the request in a namespace. It returns an error if the other side has refused the request.
func (r *comparedRequest) decide(t *testing.T, w *world, namespace string) (verdict, error) {
	t.Helper()
	warnings, err := r.send(t, w, namespace, false)
	slices.Sort(warnings)
	v := verdict{warnings: strings.ReplaceAll(strings.Join(warnings, "\n"), namespace, "NAMESPACE")}
	if err == nil {
		return v, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return v, err
	}
	s := status.Status()
	at := strings.Index(s.Message, "ValidatingAdmissionPolicy '")
	if at < 0 || strings.Contains(s.Message[:at], "admission webhook") != (namespace == ownNamespace) {
		return v, err
	}
	message, _, _ := strings.Cut(s.Message[at:], "\n2. ")
	v.refused, v.code, v.reason, v.message = true, s.Code, s.Reason, strings.ReplaceAll(message, namespace, "NAMESPACE")
	return v, nil
}

func (r *comparedRequest) run(t *testing.T, w *world) {
	for i := range r.Prepare {
		for _, namespace := range []string{nativeNamespace, ownNamespace} {
			_, err := r.Prepare[i].send(t, w, namespace, true)
			must(t, err)
		}
	}
	var native verdict
	// The API server learns of policies and roles by watches.
	support.Eventually(t, "the API server's verdict", func() error {
		var err error
		native, err = r.decide(t, w, nativeNamespace)
		if err == nil && native.refused != r.Refused {
			err = fmt.Errorf("it is %+v, want refused %v", native, r.Refused)
		}
		return err
	})
	own, err := r.decide(t, w, ownNamespace)
	must(t, err)
	own.message = missingParam.ReplaceAllString(own.message, "")
	if own != native {
		t.Errorf("Gatehouse:\n %+v\nthe API server:\n %+v", own, native)
	}
}

// The same documents give the same verdicts, first messages, warnings and audit annotations in the API server and in
// Gatehouse.
func TestUpstreamPolicies(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	w.newNamespace(t, nativeNamespace, map[string]string{"upstream": "compared", "team": "blue"})
	w.newNamespace(t, ownNamespace, map[string]string{"team": "blue"})
	w.newNamespace(t, sharedNamespace, nil)
	var before []apiRequest
	readTable(t, "upstream/before.yaml", &before)
	for i := range before {
		for _, namespace := range []string{nativeNamespace, ownNamespace} {
			_, err := before[i].send(t, w, namespace, true)
			must(t, err)
		}
	}
	must(t, w.apply(t.Context(), readDocuments(t, "upstream/definition.yaml")))
	documents := readDocuments(t, "upstream/objects.yaml", "upstream/policies.yaml", "upstream/policies-usual.yaml")
	must(t, w.apply(t.Context(), strings.ReplaceAll(documents, ownNamespace, nativeNamespace)))
	w.servePolicies(t, "upstream", documents+"---\n"+readDocuments(t, "upstream/namespaces.yaml"), "", ownNamespace)
	support.Eventually(t, "the registration", func() error {
		_, err := w.Client().CoreV1().ConfigMaps(ownNamespace).Create(t.Context(), configMap("x", map[string]string{"upstream": "ceilings"}, "size=15"), dryRun)
		return refusal(err, 422, "above the 10 of ceiling-a")
	})

	var requests []comparedRequest
	readTable(t, "upstream/requests.yaml", &requests)
	for _, refused := range []bool{true, false} {
		// The admitted ones come second, when all policies are known to be in force.
		t.Run(map[bool]string{true: "refused", false: "admitted"}[refused], func(t *testing.T) {
			for i := range requests {
				if r := &requests[i]; r.Refused == refused {
					t.Run(r.Name, func(t *testing.T) {
						t.Parallel()
						r.run(t, w)
					})
				}
			}
		})
	}
	t.Run("audit annotations", func(t *testing.T) { compareNotes(t, w) })
}

// compareNotes compares what the two sides write into the audit log, under keys of their own.
func compareNotes(t *testing.T, w *world) {
	for _, namespace := range []string{nativeNamespace, ownNamespace} {
		_, err := w.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("noted", map[string]string{"upstream": "noted"}, "a=1", "b=2"), metav1.CreateOptions{})
		must(t, err)
	}
	var native, own map[string]string
	support.Eventually(t, "the audit log", func() error {
		var nativeErr, ownErr error
		native, nativeErr = w.audited("create", "configmaps", nativeNamespace, "noted")
		own, ownErr = w.audited("create", "configmaps", ownNamespace, "noted")
		return errors.Join(nativeErr, ownErr)
	})
	for _, key := range []string{"size", "ceiling", "blank"} {
		want, got := strings.Split(native["upstream-noted/"+key], ", "), strings.Split(own[failing+"upstream-noted_"+key], ", ")
		slices.Sort(want) // params are in no order there
		if !slices.Equal(got, want) || (key == "blank") != (want[0] == "") {
			t.Errorf("%s: Gatehouse notes %q, the API server %q", key, got, want)
		}
	}
	failures := func(text string) []string {
		var list []map[string]any
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		out := make([]string, len(list))
		for i := range list {
			out[i] = fmt.Sprint(list[i])
		}
		slices.Sort(out)
		return out
	}
	got, want := failures(own[failing+"validation_failure"]), failures(native["validation.policy.admission.k8s.io/validation_failure"])
	// Two rules with two params each. Before Kubernetes 1.37 the API server kept the first alone.
	if len(got) == 4 && len(want) == 1 {
		want = append(want, want[0], got[2], got[2])
	}
	if len(got) != 4 || got[0] == got[2] || !slices.Equal(got, want) {
		t.Errorf("Gatehouse notes the failures\n%q\nthe API server\n%q", got, want)
	}
}
