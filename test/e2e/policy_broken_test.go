package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// The names of namespace, objects and user are words that occur nowhere else, so that they can be looked for.
const (
	brokenNamespace = "okapi"
	brokenObject    = "zebra"
	brokenUser      = "quagga"
)

// brokenDocuments are policies of which three have the expression.
func brokenDocuments(t *testing.T, expression, message string) string {
	t.Helper()
	return strings.NewReplacer("EXPRESSION", expression, "MESSAGE", message).Replace(readDocuments(t, "broken.yaml"))
}

// A server that starts with policies of which some do not compile is there for all others, and for what those that do
// not are about it does what their failure policies say. It never changes from what works to what does not.
func TestPoliciesThatDoNotCompile(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	w.newNamespace(t, brokenNamespace, nil)
	client, _ := w.impersonating(t, &authenticationv1.UserInfo{Username: brokenUser, Groups: []string{"system:masters"}})
	b := &broken{client: client}
	must(t, b.create("good", brokenObject+"-old", metav1.CreateOptions{}, "a=1", "b=2"))

	const wrong, right = "object.data.size() <", "object.data.size() < 2"
	b.policyServer = w.servePolicies(t, "broken", brokenDocuments(t, wrong, "at most 1"), brokenDocuments(t, right, "at most 1"), brokenNamespace)
	support.Eventually(t, "the registration", func() error {
		return refusal(b.create("good", brokenObject, dryRun, "a=1", "b=2"), 422, "AdmissionPolicy 'good' denied request: at most 1")
	})

	t.Run("log", b.says)
	t.Run("verdicts", b.verdicts)
	t.Run("metrics", b.metrics)
	t.Run("a change beside what is broken", func(t *testing.T) {
		b.rewrite(t, brokenDocuments(t, wrong, "at most one"), "error")
		if err := refusal(b.create("good", brokenObject, dryRun, "a=1", "b=2"), 422, "at most 1"); err != nil {
			t.Error(err)
		}
	})
	t.Run("repaired", func(t *testing.T) {
		b.rewrite(t, brokenDocuments(t, right, "at most one"), "ok")
		must(t, b.create("closed", brokenObject, dryRun, "a=1"))
		must(t, b.create("open", brokenObject, dryRun, "a=1"))
		must(t, b.create("changes-closed", brokenObject, dryRun, "a=1"))
		for _, policy := range []string{"good", "open"} {
			err := refusal(b.create(policy, brokenObject, dryRun, "a=1", "b=2"), 422, map[string]string{"good": "at most one", "open": "of the repaired one"}[policy])
			if err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("broken again", func(t *testing.T) {
		b.rewrite(t, brokenDocuments(t, wrong, "at most none"), "error")
		if err := refusal(b.create("good", brokenObject, dryRun, "a=1", "b=2"), 422, "at most one"); err != nil {
			t.Error(err)
		}
		must(t, b.create("closed", brokenObject, dryRun, "a=1"))
		if err := refusal(b.create("open", brokenObject, dryRun, "a=1", "b=2"), 422, "of the repaired one"); err != nil {
			t.Error(err)
		}
	})
}

// broken is what the parts of TestPoliciesThatDoNotCompile share.
type broken struct {
	*policyServer
	client kubernetes.Interface
}

// create creates a ConfigMap that a policy is about.
func (b *broken) create(policy, name string, options metav1.CreateOptions, data ...string) error {
	c := configMap(name, map[string]string{"broken": policy}, data...)
	if policy == "bound" && len(data) > 0 {
		c.Labels["few"] = "true"
	}
	_, err := b.client.CoreV1().ConfigMaps(brokenNamespace).Create(context.Background(), c, options)
	return err
}

// rewrite changes the documents and waits until the server has read them, with this result.
func (b *broken) rewrite(t *testing.T, documents, result string) {
	t.Helper()
	loads := func() float64 {
		n, err := b.server.Metric(t.Context(), "gatehouse_config_loads_total", `result="`+result+`"`)
		must(t, err)
		return n
	}
	before := loads()
	must(t, os.WriteFile(filepath.Join(b.config, "documents.yaml"), []byte(documents), 0o600))
	support.Eventually(t, "the configuration is read", func() error {
		if loads() == before {
			return errors.New("it is not")
		}
		return nil
	})
}

// says wants an error in the log for each expression that does not compile, and to read what that means.
func (b *broken) says(t *testing.T) {
	log, err := os.ReadFile(b.server.Log())
	must(t, err)
	found := map[string]string{}
	told := false
	for line := range strings.Lines(string(log)) {
		var entry struct{ Level, Msg, Source, Object, Field, Finding string }
		must(t, json.Unmarshal([]byte(line), &entry))
		told = told || entry.Level == "ERROR" && strings.HasPrefix(entry.Msg, "expressions do not compile")
		if entry.Field != "" {
			found[entry.Object] = strings.Join([]string{entry.Level, entry.Source, entry.Field, entry.Finding}, " ")
		}
	}
	for object, source := range map[string]string{"AdmissionPolicy/closed": "documents.yaml#4", "AdmissionPolicy/open": "documents.yaml#5", "AdmissionPolicy/bound": "documents.yaml#6"} {
		if want := "ERROR " + source + ` spec.validations[1].expression 1:21 in "object.data.size() <"`; !strings.HasPrefix(found[object], want) {
			t.Errorf("the log says of %s: %q, want %q", object, found[object], want)
		}
	}
	for object, source := range map[string]string{"MutatingAdmissionPolicy/changes-closed": "documents.yaml#9", "MutatingAdmissionPolicy/changes-open": "documents.yaml#11"} {
		if want := "ERROR " + source + " spec.mutations[0].applyConfiguration.expression 1:39"; !strings.HasPrefix(found[object], want) {
			t.Errorf("the log says of %s: %q, want %q", object, found[object], want)
		}
	}
	if !told {
		t.Error("the log does not say what becomes of policies that do not compile")
	}
	failed, err := b.server.Metric(t.Context(), "gatehouse_config_loads_total", `result="error"`)
	must(t, err)
	if failed != 1 {
		t.Errorf("%v configurations with errors are counted", failed)
	}
}

// verdicts are those of the policies that compile, and otherwise follow failure policies.
func (b *broken) verdicts(t *testing.T) {
	stored := metav1.CreateOptions{}
	for _, c := range []struct {
		name, policy, object string
		data                 []string
		says                 []string // none admits
	}{
		{"kept", "good", "kept", []string{"a=1"}, nil},
		{"violated", "good", "violated", []string{"a=1", "b=2"}, []string{"AdmissionPolicy 'good' denied request: at most 1"}},
		{"excepted", "good", "excepted", []string{"a=1", "b=2"}, nil},
		{"fails", "strict", "strict", nil, []string{"AdmissionPolicy 'strict' denied request: expression 'object.data.missing == 'x'' resulted in error"}},
		{"fails and is ignored", "lenient", "lenient", nil, nil},
		{"does not compile, only warns", "closed", "closed", nil, []string{"AdmissionPolicy 'closed' denied request: failed to configure policy: its expressions do not compile"}},
		{"does not compile, excepted", "closed", "excepted-too", nil, nil},
		{"does not compile and is ignored", "open", "open", nil, nil},
		{"does not compile, bound", "bound", "bound", []string{"few=x"}, []string{"AdmissionPolicy 'bound'", "denied request: failed to configure policy: "}},
		{"is about nothing that is broken", "nothing", "nothing", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := b.create(c.policy, brokenObject+"-"+c.object, stored, c.data...)
			if c.says != nil {
				err = refusal(err, 422, append(c.says, byWebhook)...)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	err := refusal(b.create("changes-closed", brokenObject+"-changed", stored), 403,
		`admission webhook "fail.mutate.gatehouse.dev" denied the request: policy "changes-closed" denied request: failed to configure policy: its expressions do not compile`)
	if err != nil {
		t.Error(err)
	}
	must(t, b.create("changes-open", brokenObject+"-unchanged", stored))
	old, err := b.client.CoreV1().ConfigMaps(brokenNamespace).Get(t.Context(), brokenObject+"-old", metav1.GetOptions{})
	must(t, err)
	old.Labels["note"] = "harmless"
	_, err = b.client.CoreV1().ConfigMaps(brokenNamespace).Update(t.Context(), old, metav1.UpdateOptions{})
	must(t, err)
}

// metrics count what became of policies and rules, but nothing of dry runs, and hold no names of who and what was asked
// for.
func (b *broken) metrics(t *testing.T) {
	for _, m := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"gatehouse_policy_evaluations_total", []string{`kind="AdmissionPolicy"`, `policy="good"`, `rule="validations[0]"`, `outcome="Passed"`}, 1},
		{"gatehouse_policy_evaluations_total", []string{`policy="good"`, `rule="validations[0]"`, `outcome="Violated"`}, 1},
		{"gatehouse_policy_evaluations_total", []string{`policy="good"`, `rule="validations[0]"`, `outcome="Excepted"`}, 1},
		{"gatehouse_policy_evaluations_total", []string{`policy="good"`, `rule="validations[0]"`, `outcome="Existing"`}, 1},
		{"gatehouse_policy_evaluations_total", []string{`policy="good"`, `rule="validations[1]"`, `outcome="Passed"`}, 4},
		{"gatehouse_policy_evaluations_total", []string{`policy="good"`, `rule=""`, `outcome="Evaluated"`}, 4},
		{"gatehouse_policy_evaluations_total", []string{`policy="strict"`, `rule="validations[0]"`, `outcome="Failed"`}, 1},
		{"gatehouse_policy_evaluations_total", []string{`policy="lenient"`, `rule="validations[0]"`, `outcome="Ignored"`}, 1},
		{"gatehouse_policy_evaluations_total", []string{`policy="closed"`, `rule=""`}, 2},
		{"gatehouse_policy_evaluations_total", []string{`policy="open"`, `rule=""`, `outcome="Ignored"`}, 1},
		{"gatehouse_policy_evaluations_total", []string{`kind="MutatingAdmissionPolicy"`, `policy="changes-closed"`, `outcome="Failed"`}, 1},
		{"gatehouse_policy_evaluations_total", []string{`kind="MutatingAdmissionPolicy"`, `policy="changes-open"`, `outcome="Ignored"`}, 1},
		{"gatehouse_policy_exceptions_used_total", []string{`kind="AdmissionPolicy"`, `policy="good"`}, 1},
		{"gatehouse_policy_exceptions_used_total", []string{`policy="closed"`}, 1},
		{"gatehouse_policy_duration_seconds_count", []string{`policy="good"`}, 4},
	} {
		got, err := b.server.Metric(t.Context(), m.name, m.labels...)
		must(t, err)
		if got != m.want {
			t.Errorf("%s%q is %v, want %v", m.name, m.labels, got, m.want)
		}
	}
	cost, err := b.server.Metric(t.Context(), "gatehouse_policy_cost_total", `policy="good"`)
	must(t, err)
	if cost <= 0 {
		t.Errorf("the cost is %v", cost)
	}
	_, metrics, err := b.server.Get(t.Context(), "/metrics")
	must(t, err)
	for _, name := range []string{brokenNamespace, brokenObject, brokenUser, corev1.NamespaceDefault, "configmaps"} {
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "gatehouse_") && strings.Contains(line, name) {
				t.Errorf("a metric has %q in it: %s", name, line)
			}
		}
	}
}
