package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	openreports "github.com/openreports/reports-api/pkg/client/clientset/versioned/typed/openreports.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// background is a cluster that is audited.
type background struct {
	*cluster.Cluster
	admin, account string
	reports        *openreports.OpenreportsV1alpha1Client
	policies       dynamic.ResourceInterface
}

// reportDefinitions returns the file of OpenReports' definitions in its Go module.
func reportDefinitions(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openreports/reports-api").Output()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "config", "install.yaml"))
	must(t, err)
	return string(text)
}

// newBackground returns a cluster with policies, objects that violate them, and the printed rights of Gatehouse.
func newBackground(t *testing.T) *background {
	t.Helper()
	c := cluster.New(t, cluster.Options{ControllerManager: true})
	b := &background{Cluster: c, admin: kubeconfig(t, c.Config())}
	account, err := c.ConfigFor("system:serviceaccount:gatehouse-system:gatehouse", "system:serviceaccounts", "system:authenticated")
	must(t, err)
	b.account = kubeconfig(t, account)
	b.reports, err = openreports.NewForConfig(c.Config())
	must(t, err)
	objects, err := dynamic.NewForConfig(c.Config())
	must(t, err)
	b.policies = objects.Resource(schema.GroupVersionResource{Group: "gatehouse.dev", Version: "v1alpha1", Resource: "admissionpolicies"})
	for _, name := range []string{"shop", "pay", "gatehouse-system"} {
		must(t, c.CreateNamespace(t.Context(), name, nil))
	}
	definitions, err := gatehouse.Run(t.Context(), "manifests", "--crds")
	must(t, err)
	apply(t, c, definitions)
	apply(t, c, reportDefinitions(t))
	b.applyEventually(t, read(t, "background/objects.yaml"))
	b.applyEventually(t, read(t, "background/policies.yaml"))
	rights, err := gatehouse.Run(t.Context(), "manifests", "--service", "gatehouse-system/gatehouse", "--certificates", "self-signed", "--custom-resources", "--part", "rights")
	must(t, err)
	apply(t, c, rights)
	b.grant(t)
	return b
}

// applyEventually applies objects whose definitions may not be served yet.
func (b *background) applyEventually(t *testing.T, manifest string) {
	t.Helper()
	support.Eventually(t, "the objects are applied", func() error {
		if text, err := kubectl(t, b.Cluster, manifest, "apply", "-f", "-"); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
}

// grant gives the rights that manifests --audit prints.
func (b *background) grant(t *testing.T) {
	t.Helper()
	code, rights, messages := program(t, "manifests", "--audit", "--kubeconfig", b.admin)
	if code != 0 || strings.Contains(rights, `"*"`) {
		t.Fatalf("exit code %d: %s%s", code, rights, messages)
	}
	apply(t, b.Cluster, rights)
}

// start starts a replica.
func (b *background) start(t *testing.T, replica, kubeconfig string, flags ...string) *gatehouse.Server {
	t.Helper()
	s, err := gatehouse.Start(t.Context(), filepath.Join(t.TempDir(), "log"), append([]string{
		"--custom-resources", "--kubeconfig", kubeconfig, "--replica", replica, "--self-signed", "127.0.0.1",
		"--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--drain-delay", "0s", "--audit-every", "10h",
	}, flags...)...)
	must(t, err)
	t.Cleanup(s.Kill)
	return s
}

// contents returns what the reports of an install say, each with its namespace, results and resource version.
func (b *background) contents(t *testing.T, name string) (results []string, versions map[string]string) {
	t.Helper()
	versions = map[string]string{}
	add := func(namespace, version string, s v1alpha1.ReportSummary, list []v1alpha1.ReportResult) {
		versions[namespace] = version
		results = append(results, fmt.Sprintf("%s: fail %d warn %d error %d skip %d", namespace, s.Fail, s.Warn, s.Error, s.Skip))
		for _, r := range list {
			subject := ""
			if len(r.Subjects) > 0 {
				subject = r.Subjects[0].Kind + " " + r.Subjects[0].Name
				if r.Subjects[0].UID == "" || r.Source != "gatehouse" {
					t.Errorf("the result %+v lacks a field that readers need", r)
				}
			}
			results = append(results, strings.TrimSpace(fmt.Sprintf("%s: %s %s %s %s", namespace, r.Result, r.Policy, r.Rule, subject)))
		}
	}
	all, err := b.reports.Reports("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, r := range all.Items {
		if r.Name == name {
			add(r.Namespace, r.ResourceVersion, r.Summary, r.Results)
		}
	}
	whole, err := b.reports.ClusterReports().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, r := range whole.Items {
		if r.Name == name {
			add("", r.ResourceVersion, r.Summary, r.Results)
		}
	}
	slices.Sort(results)
	return results, versions
}

// want waits until the reports say something.
func (b *background) want(t *testing.T, what, name string, want ...string) map[string]string {
	t.Helper()
	slices.Sort(want)
	var versions map[string]string
	support.Eventually(t, what, func() error {
		var got []string
		if got, versions = b.contents(t, name); !slices.Equal(got, want) {
			return fmt.Errorf("the reports say\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
	return versions
}

// audits waits until a replica has published so many audits.
func (b *background) audits(t *testing.T, s *gatehouse.Server, n float64) {
	t.Helper()
	support.Eventually(t, "the audits", func() error {
		got, err := s.Metric(context.WithoutCancel(t.Context()), "gatehouse_audit_runs_total", "outcome", "published")
		if err == nil && got < n {
			err = fmt.Errorf("%v audits are published, want %v", got, n)
		}
		return err
	})
}

// published returns the number of audits that a replica has published.
func published(t *testing.T, s *gatehouse.Server) float64 {
	t.Helper()
	n, err := s.Metric(t.Context(), "gatehouse_audit_runs_total", "outcome", "published")
	must(t, err)
	return n
}

// status returns status.audit of a policy.
func (b *background) status(t *testing.T, policy string) (audit struct {
	Violations, Warnings int64
	NotAudited           []string
	AuditedAt            string
},
) {
	t.Helper()
	object, err := b.policies.Get(t.Context(), policy, metav1.GetOptions{})
	must(t, err)
	status, _ := object.Object["status"].(map[string]any)
	text, err := json.Marshal(status["audit"])
	must(t, err)
	must(t, json.Unmarshal(text, &audit))
	return audit
}

// logged returns the lines of a log about audits.
func logged(t *testing.T, s *gatehouse.Server) string {
	t.Helper()
	text, err := os.ReadFile(s.Log())
	must(t, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"msg":"audit"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// kubernetesService is the violation of an object that every cluster has.
const kubernetesService = "default: fail owners validations[owner] Service kubernetes"

// TestBackground: the elected replica audits, with the printed rights. Reports follow objects and policies, are restored, and are not
// written while nothing changes, whoever audits.
func TestBackground(t *testing.T) {
	t.Parallel()
	b := newBackground(t)
	const name = "gatehouse-audit"
	a := b.start(t, "a", b.account)
	owners := []string{
		": fail 1 warn 0 error 0 skip 1", ": fail owners validations[owner] PersistentVolume disk", ": skip people validations[people]",
		"default: fail 1 warn 0 error 0 skip 0", kubernetesService,
		"shop: fail 1 warn 0 error 0 skip 0", "shop: fail owners validations[owner] Service open",
	}
	pay := []string{"pay: fail 1 warn 0 error 0 skip 0", "pay: fail owners validations[owner] Service ledger"}
	first := b.want(t, "the first audit", name, slices.Concat(owners, pay)...)
	support.Eventually(t, "the status of the policies", func() error {
		owners, people := b.status(t, "owners"), b.status(t, "people")
		if owners.Violations != 4 || owners.AuditedAt == "" || len(people.NotAudited) != 1 || !strings.Contains(people.NotAudited[0], "userInfo") {
			return fmt.Errorf("they are %+v and %+v", owners, people)
		}
		return nil
	})
	status := b.status(t, "owners")

	// Another replica goes on, and writes nothing.
	next := b.start(t, "b", b.account)
	must(t, a.Signal(syscall.SIGTERM))
	<-a.Exited()
	b.audits(t, next, 1)
	if _, versions := b.contents(t, name); !maps.Equal(versions, first) {
		t.Errorf("the second audit wrote %v, there was %v", versions, first)
	}
	if again := b.status(t, "owners"); again.AuditedAt != status.AuditedAt {
		t.Errorf("the second audit wrote the status %+v, it was %+v", again, status)
	}
	if n, err := next.Metric(t.Context(), "gatehouse_audit_report_writes_total", "outcome", "written"); err != nil || n != 0 {
		t.Errorf("%v reports are written, %v", n, err)
	}

	// A policy is created: it needs a right. What somebody edited or deleted in the meantime is restored.
	_, err := b.reports.Reports("shop").Patch(t.Context(), name, types.MergePatchType, []byte(`{"results":null,"summary":{"fail":0}}`), metav1.PatchOptions{})
	must(t, err)
	must(t, b.reports.Reports("pay").Delete(t.Context(), name, metav1.DeleteOptions{}))
	apply(t, b.Cluster, read(t, "background/secrets.yaml"))
	b.want(t, "an audit without a right", name, slices.Concat(owners, pay, []string{
		": fail 1 warn 0 error 1 skip 1", ": error gatehouse-audit secrets",
	})[1:]...)
	if text := logged(t, next); !strings.Contains(text, "lacks the right to list secrets") || !strings.Contains(text, "gatehouse manifests --audit") {
		t.Errorf("it logged %s", text)
	}
	support.Eventually(t, "the status names the right", func() error {
		if got := b.status(t, "secrets").NotAudited; len(got) != 1 || !strings.Contains(got[0], "list secrets") {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	b.grant(t)
	apply(t, b.Cluster, strings.ReplaceAll(read(t, "background/secrets.yaml"), "< 2", "<= 1"))
	shop := slices.DeleteFunc(slices.Clone(owners), func(s string) bool { return s == "shop: fail 1 warn 0 error 0 skip 0" })
	b.want(t, "an audit with the right", name, slices.Concat(shop, pay, []string{"shop: fail 1 warn 1 error 0 skip 0", "shop: warn secrets validations[small] Secret keys"})...)
	report, err := b.reports.Reports("shop").Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	if text := fmt.Sprint(report); strings.Contains(text, "hunter") {
		t.Errorf("the report is %s", text)
	}

	// The policy is removed, and so are its results; a namespace is deleted with its report.
	must(t, b.policies.Delete(t.Context(), "secrets", metav1.DeleteOptions{}))
	must(t, b.Client().CoreV1().Namespaces().Delete(t.Context(), "pay", metav1.DeleteOptions{}))
	b.want(t, "the policy and the namespace are gone", name, owners...)

	// Another install has reports of its own.
	must(t, b.CreateNamespace(t.Context(), "trial", nil))
	trial := b.start(t, "c", b.admin, "--namespace", "trial")
	b.want(t, "the reports of another install", name+"-trial", owners...)
	b.want(t, "the reports of the first install", name, owners...)
	must(t, trial.Signal(syscall.SIGTERM))
	<-trial.Exited()

	// The definitions of the reports are deleted. Metrics and the status go on.
	if text, err := kubectl(t, b.Cluster, "", "delete", "crd", "reports.openreports.io", "clusterreports.openreports.io"); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	before := published(t, next)
	apply(t, b.Cluster, read(t, "background/secrets.yaml"))
	b.audits(t, next, before+1)
	support.Eventually(t, "an audit without reports", func() error {
		n, err := next.Metric(context.WithoutCancel(t.Context()), "gatehouse_audit_violations", "policy", "secrets", "status", "warn")
		if err == nil && n != 1 {
			err = fmt.Errorf("%v warnings", n)
		}
		return err
	})
	if text := logged(t, next); !strings.Contains(text, "does not have reports and clusterreports in openreports.io") {
		t.Errorf("it logged %s", text)
	}
	if _, err := b.reports.Reports("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("reports: %v", err)
	}
}
