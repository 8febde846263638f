package audit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// TestWave are the values of --wave, and how many of so many workloads a wave has.
func TestWave(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1": "1 1 1", "10": "10 10 10", "10%": "1 1 3", "100%": "1 7 25", "1%": "1 1 1", "2147483647": "2147483647 2147483647 2147483647",
		"0": "", "0%": "", "101%": "", "": "", "-1": "", "a": "", "10 %": "", "99999999999999999999": "",
	} {
		var w wave
		err := w.Set(text)
		got := fmt.Sprint(w.size(0), w.size(7), w.size(25))
		if want == "" && err == nil || want != "" && (err != nil || got != want || w.String() != text) {
			t.Errorf("--wave %q is %q (%v), want %q", text, got, err, want)
		}
	}
	if all := (&wave{}).size(7); all != 7 {
		t.Errorf("without --wave, one has %d of 7", all)
	}
}

// scriptOf returns the script for pods of these controllers.
func scriptOf(f *auditFlags, owners ...workload) string {
	r := newRestarts(summary.New(0))
	for i, w := range owners {
		o := pod(w.namespace, fmt.Sprintf("pod-%d", i))
		if w.Kind == "Pod" {
			o.Name = w.Name
		} else {
			o.Controller = w.Controller
		}
		r.Injection(o, "logs", audit.Missing)
		r.Injection(o, "other", audit.Current)
		r.Injection(o, "another", audit.Declined)
	}
	var out bytes.Buffer
	r.print(decision.LinePrinter(&out), f, complete(sampleFlags(), sampleOutcome(), summary.New(0).Summary()))
	return out.String()
}

func of(group, kind, namespace, name string) workload {
	return workload{namespace, audit.Controller{GroupKind: schema.GroupKind{Group: group, Kind: kind}, Name: name}}
}

// runScript runs a script with a kubectl that notes its arguments, and returns these, one run in a line.
func runScript(t *testing.T, script string) []string {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	kubectl := "#!/bin/sh\nfor a in \"$@\"; do printf '<%s>' \"$a\"; done >> \"$LOG\"\necho >> \"$LOG\"\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700); err != nil { // #nosec G306 -- it is run
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Stdin, cmd.Dir, cmd.Env = strings.NewReader(script), dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "LOG=" + log}
	if text, err := cmd.CombinedOutput(); err != nil || len(text) > 0 {
		t.Fatalf("%v: %s\n%s", err, text, script)
	}
	text, _ := os.ReadFile(log) // #nosec G304 -- of this test
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 2 {
		t.Errorf("the script has written files: %v", entries)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// TestRestartScript restarts what kubectl can restart, wave by wave, and names the rest.
func TestRestartScript(t *testing.T) {
	t.Parallel()
	f := &auditFlags{wave: wave{number: 50, percent: true}}
	f.Context, f.Kubeconfig = "prod eu", "/tmp/k c"
	script := scriptOf(f,
		of("apps", "Deployment", "shop", "cart"), of("apps", "Deployment", "shop", "cart"), of("apps", "StatefulSet", "pay", "db"), of("apps", "DaemonSet", "shop", "agent"),
		of("", "Pod", "shop", "debug"), of("batch", "Job", "shop", "import"), of("batch", "CronJob", "shop", "backup"), of("apps", "ReplicaSet", "shop", "old"),
		of("", "ReplicationController", "shop", "older"), of("", "Node", "shop", "node-1"), of("apps.kruise.io", "StatefulSet", "shop", "x"), of("argoproj.io", "Rollout", "shop", "r"),
	)
	context := "<--kubeconfig></tmp/k c><--context><prod eu>"
	want := []string{
		context + "<-n><pay><rollout><restart><statefulset/db>", context + "<-n><shop><rollout><restart><daemonset/agent>",
		context + "<-n><pay><rollout><status><statefulset/db>", context + "<-n><shop><rollout><status><daemonset/agent>",
		context + "<-n><shop><rollout><restart><deployment/cart>",
	}
	if got := runScript(t, script); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), script)
	}
	for _, line := range []string{
		"# wave 2 of 2", "# Deployment.apps shop/cart: logs missing in 2 pods", "# Pod shop/debug: logs missing in 1 pod: no controller creates it again: delete it and create it yourself",
		"# Job.batch shop/import: logs missing in 1 pod: it would begin anew: let it end, or delete it and create it yourself", "# CronJob.batch shop/backup: logs missing in 1 pod: its next run has the sidecars",
		"# StatefulSet.apps.kruise.io shop/x: logs missing in 1 pod: kubectl rollout restart does not know its kind: restart it as its controller provides",
		"# Node shop/node-1: logs missing in 1 pod: the kubelet of the node runs it from a file, and no webhook is called",
	} {
		if !slices.Contains(strings.Split(script, "\n"), line) {
			t.Errorf("%q is not in\n%s", line, script)
		}
	}
}

// TestHostileRestarts: no name executes anything or leaves its line.
func TestHostileRestarts(t *testing.T) {
	t.Parallel()
	texts := append(hostileTexts(), "$(touch pwned)", "`touch pwned`", "a;touch pwned", "'; touch pwned; '", "-f", "--all", "a\ntouch pwned\n", `\`, "# x", "\r\ntouch pwned")
	for _, text := range texts {
		f := &auditFlags{}
		f.Context = text
		got := runScript(t, scriptOf(f, of("apps", "Deployment", text, text), of("", "Pod", text, text), of(text, text, text, text)))
		if len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), "<-n><"+text+"><rollout><restart><deployment/"+text+">") {
			t.Errorf("%q: kubectl got %q", text, got)
		}
		checkInert(t, scriptOf(&auditFlags{}, of("apps", "Deployment", text, text), of("", "Pod", text, text)))
	}
}

// TestRestartCommand reads pods of a cluster, and finds their workloads.
func TestRestartCommand(t *testing.T) {
	t.Parallel()
	api := fakeapi.New(
		fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("sidecarprofiles"), Kind: "SidecarProfile"},
		fakeapi.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Namespaced: true},
		fakeapi.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace"},
	)
	api.Put(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}})
	put := func(name, phase, hash string, annotations map[string]any, owner map[string]any) {
		metadata := map[string]any{"name": name, "namespace": "shop", "annotations": annotations, "labels": map[string]any{"pod-template-hash": hash}}
		if owner != nil {
			owner["controller"], owner["uid"] = true, name
			metadata["ownerReferences"] = []any{owner}
		}
		api.Put(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}}, "status": map[string]any{"phase": phase}})
	}
	rs := func(name string) map[string]any {
		return map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name}
	}
	put("cart-5f-1", "Running", "5f", nil, rs("cart-5f"))
	put("cart-5f-2", "Running", "5f", nil, rs("cart-5f"))
	put("ended", "Succeeded", "5f", nil, rs("ended-5f"))
	put("declined", "Running", "5f", map[string]any{"sidecar.gatehouse.dev/inject": "false"}, rs("declined-5f"))
	put("old-1", "Running", "", nil, rs("old"))
	put("bare", "Running", "", nil, nil)
	put("job-1", "Running", "", nil, map[string]any{"apiVersion": "batch/v1", "kind": "Job", "name": "backup-29372520"})
	args := []string{"audit", "--partial", "-o", "restart", "--kubeconfig", fakeapi.Kubeconfig(t, api)}
	if got := clitest.Run(t.Context(), "", args, NewCommand); got.Code != cli.ExitUnknown || !strings.Contains(got.Err, "no policy and no profile is active") {
		t.Errorf("without a profile: %+v", got)
	}
	api.Put(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "SidecarProfile", "metadata": map[string]any{"name": "logs"}, "spec": map[string]any{
		"injection": "OptOut", "template": map[string]any{"spec": map[string]any{"initContainers": []any{map[string]any{"name": "logs", "image": "logs", "restartPolicy": "Always"}}}},
	}})
	got := clitest.Run(t.Context(), "", args, NewCommand)
	for _, want := range []string{
		"# Deployment.apps shop/cart: logs missing in 2 pods\nkubectl --kubeconfig ", " -n shop rollout restart deployment/cart\n\n# not restarted:\n",
		"# ReplicaSet.apps shop/old: ", "# Pod shop/bare: ", "# CronJob.batch shop/backup: ",
	} {
		if got.Code != cli.ExitYes || !strings.Contains(got.Out, want) {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
	if strings.Contains(got.Out, "ended") || strings.Contains(got.Out, "declined") || strings.Contains(got.Out, "rollout status") {
		t.Errorf("got %s", got.Out)
	}
	for _, wrong := range [][]string{{"--kind", "Pod"}, {"--wave", "0"}, {"-o", "table", "--wave", "3"}} {
		if got := clitest.Run(t.Context(), "", append(slices.Clone(args), wrong...), NewCommand); got.Code != cli.ExitUnknown || got.Out != "" {
			t.Errorf("%q: %+v", wrong, got)
		}
	}
}
