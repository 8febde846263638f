package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// The API server enforces the documents in one of these namespaces, and Gatehouse in the other: the bindings select a
// label, and each side is told of it for its own namespace alone. Params that both share are in the third.
const (
	nativeNamespace = "upstream-native"
	ownNamespace    = "upstream-own"
	sharedNamespace = "upstream-shared"
)

// compared is a request that is made in both namespaces.
type compared struct {
	name    string
	refused bool
	// user is who asks; nil is the administrator.
	user *authenticationv1.UserInfo
	ask  func(ctx context.Context, client kubernetes.Interface, namespace string) error
}

// answer is what a client learns, but for the namespace's name.
func (c *compared) answer(t *testing.T, w *world, namespace string) (verdict, []string, error) {
	t.Helper()
	var given recorder
	config := w.Config()
	config.WarningHandlerWithContext = &given
	if c.user != nil {
		extra := map[string][]string{}
		for key, values := range c.user.Extra {
			extra[key] = values
		}
		config.Impersonate = rest.ImpersonationConfig{UserName: c.user.Username, UID: c.user.UID, Groups: c.user.Groups, Extra: extra}
	}
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	err = c.ask(t.Context(), client, namespace)
	warnings := given.list()
	for i := range warnings {
		warnings[i] = strings.ReplaceAll(warnings[i], namespace, "NAMESPACE")
	}
	slices.Sort(warnings)
	if err == nil {
		return verdict{}, warnings, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return verdict{}, nil, err
	}
	s := status.Status()
	at := strings.Index(s.Message, "ValidatingAdmissionPolicy '")
	if at < 0 || strings.Contains(s.Message[:at], "admission webhook") != (namespace == ownNamespace) {
		return verdict{}, nil, err
	}
	message, _, _ := strings.Cut(s.Message[at:], "\n2. ")
	return verdict{true, s.Code, s.Reason, strings.ReplaceAll(message, namespace, "NAMESPACE")}, warnings, nil
}

func (c *compared) run(t *testing.T, w *world) {
	var native verdict
	var nativeWarnings []string
	// The API server takes up policies, and what users may do, a moment after they were created.
	support.Eventually(t, "the API server's verdict", func() error {
		var err error
		native, nativeWarnings, err = c.answer(t, w, nativeNamespace)
		if err == nil && native.refused != c.refused {
			err = fmt.Errorf("it is %+v, want refused %v", native, c.refused)
		}
		return err
	})
	own, ownWarnings, err := c.answer(t, w, ownNamespace)
	must(t, err)
	if own != native {
		t.Errorf("Gatehouse:\n %+v\nthe API server:\n %+v", own, native)
	}
	if !slices.Equal(ownWarnings, nativeWarnings) {
		t.Errorf("Gatehouse warns:\n %q\nthe API server:\n %q", ownWarnings, nativeWarnings)
	}
}

// The same documents give the same verdicts, first messages, warnings and audit annotations in the API server and in
// Gatehouse, also where they look things up, fail, or are about what is no plain creation.
func TestUpstreamSemantics(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	w.newNamespace(t, nativeNamespace, map[string]string{"upstream": "compared"})
	w.newNamespace(t, ownNamespace, nil)
	w.newNamespace(t, sharedNamespace, nil)
	for _, namespace := range []string{nativeNamespace, ownNamespace} {
		for _, name := range []string{"p", "stays"} {
			_, err := w.Client().CoreV1().Pods(namespace).Create(t.Context(), pod(name), metav1.CreateOptions{})
			must(t, err)
		}
		for _, name := range []string{"kept", "gone"} {
			c := configMap(name, map[string]string{"upstream": "deleted"}, "keep="+map[string]string{"kept": "yes", "gone": "no"}[name])
			_, err := w.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), c, metav1.CreateOptions{})
			must(t, err)
		}
		_, err := w.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("stored", map[string]string{"upstream": "requests"}, "pass=yes"), metav1.CreateOptions{})
		must(t, err)
		_, err = w.Client().AutoscalingV1().HorizontalPodAutoscalers(namespace).Create(t.Context(), oldScaler("stored", "scalers", 60), metav1.CreateOptions{})
		must(t, err)
	}
	must(t, w.apply(t.Context(), thingDefinition))
	documents := upstreamDocuments()
	must(t, w.apply(t.Context(), strings.ReplaceAll(upstreamObjects+documents, ownNamespace, nativeNamespace)))
	w.servePolicies(t, "upstream", upstreamObjects+documents+upstreamNamespaces, "", ownNamespace)
	support.Eventually(t, "the registration", func() error {
		_, err := w.Client().CoreV1().ConfigMaps(ownNamespace).Create(t.Context(), configMap("x", map[string]string{"upstream": "ceilings"}, "size=15"), dryRun)
		return refusal(err, 422, "above the 10 of ceiling-a")
	})

	for _, refused := range []bool{true, false} {
		// What is admitted comes second, when all policies are known to be in force.
		t.Run(map[bool]string{true: "refused", false: "admitted"}[refused], func(t *testing.T) {
			for _, c := range comparedRequests() {
				if c.refused == refused {
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						c.run(t, w)
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
		native, nativeErr = w.auditedAs("create", nativeNamespace, "noted")
		own, ownErr = w.auditedAs("create", ownNamespace, "noted")
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
