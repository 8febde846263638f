package audit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// restartOutput is the value of -o for a script that restarts workloads.
const restartOutput = "restart"

// wave is --wave: a number of workloads, a share of them, or all for the zero value.
type wave struct {
	number  int
	percent bool
}

// String implements pflag.Value.
func (w *wave) String() string {
	switch {
	case w.number == 0:
		return ""
	case w.percent:
		return strconv.Itoa(w.number) + "%"
	default:
		return strconv.Itoa(w.number)
	}
}

// Type implements pflag.Value.
func (*wave) Type() string { return "N|N%" }

// Set implements pflag.Value.
func (w *wave) Set(text string) error {
	digits, percent := strings.CutSuffix(text, "%")
	const bits, all = 31, 100
	number, err := strconv.ParseUint(digits, 10, bits)
	if err != nil || number == 0 || percent && number > all {
		return errors.New("must be a number of workloads from 1 on, or a share from 1% to 100%")
	}
	w.number, w.percent = int(number), percent
	return nil
}

// size returns how many of n workloads a wave has, at least one.
func (w *wave) size(n int) int {
	switch {
	case w.number == 0:
		return max(n, 1)
	case w.percent:
		const all = 100
		return max((n*w.number+all-1)/all, 1)
	default:
		return w.number
	}
}

// workload is one whose pods are to be created anew, or a pod without one.
type workload struct {
	namespace string
	audit.Controller
}

// sidecarState is what the sidecars of a profile are in pods.
type sidecarState struct {
	profile string
	state   audit.Injection
}

// restarts is a sink that collects the workloads whose pods do not have the sidecars that they would get now, for another one.
type restarts struct {
	audit.Sink
	// pods are how many pods of each workload have a state.
	pods map[workload]map[sidecarState]int64
}

func newRestarts(next audit.Sink) *restarts {
	return &restarts{next, map[workload]map[sidecarState]int64{}}
}

// Injection implements audit.Sink.
func (r *restarts) Injection(o audit.Object, profile string, state audit.Injection) {
	r.Sink.Injection(o, profile, state)
	if state == audit.Current || state == audit.Declined {
		return
	}
	of := workload{o.Namespace, o.Controller}
	if of.Name == "" {
		of.Controller = audit.Controller{GroupKind: o.GroupKind(), Name: o.Name}
	}
	if r.pods[of] == nil {
		for _, text := range [...]*string{&of.namespace, &of.Group, &of.Kind, &of.Name} {
			*text = strings.Clone(*text) // without keeping the text of the pod in memory
		}
		r.pods[of] = map[sidecarState]int64{}
	}
	r.pods[of][sidecarState{strings.Clone(profile), state}]++
}

// restartable returns the kinds that kubectl rollout restart knows.
func (w *workload) restartable() bool {
	return w.Group == "apps" && (w.Kind == "Deployment" || w.Kind == "StatefulSet" || w.Kind == "DaemonSet")
}

// whyNot returns why kubectl rollout restart does not help, and what does.
func (w *workload) whyNot() string {
	switch w.GroupKind {
	case schema.GroupKind{Kind: "Pod"}:
		return "no controller creates it again: delete it and create it yourself"
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return "its next run has the sidecars"
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return "it would begin anew: let it end, or delete it and create it yourself"
	case schema.GroupKind{Kind: "Node"}:
		return "the kubelet of the node runs it from a file, and no webhook is called"
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Kind: "ReplicationController"}:
		return "kubectl rollout restart does not know it: delete its pods one after the other"
	default:
		return "kubectl rollout restart does not know its kind: restart it as its controller provides"
	}
}

// title names the workload on one line.
func (w *workload) title() string {
	kind := w.Kind
	if w.Group != "" {
		kind += "." + w.Group
	}
	return cli.InertName(kind) + " " + cli.InertName(w.namespace) + "/" + cli.InertName(w.Name)
}

// states says on one line in how many pods of the workload which sidecars are missing or old.
func (r *restarts) states(w workload) string {
	of := r.pods[w]
	sorted := slices.SortedFunc(maps.Keys(of), func(a, b sidecarState) int {
		return cmp.Or(cmp.Compare(a.profile, b.profile), cmp.Compare(a.state, b.state))
	})
	parts := make([]string, len(sorted))
	for i, s := range sorted {
		parts[i] = fmt.Sprintf("%s %s in %s", cli.InertName(s.profile), s.state, diagnostic.Count(int(of[s]), "pod"))
	}
	return strings.Join(parts, ", ")
}

// print writes a script that restarts the workloads wave by wave. What it does not restart is in comments.
func (r *restarts) print(line func(string, ...any), f *auditFlags, report *report) {
	var list, others []workload
	sorted := slices.SortedFunc(maps.Keys(r.pods), func(a, b workload) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	for _, w := range sorted {
		if w.restartable() {
			list = append(list, w)
		} else {
			others = append(others, w)
		}
	}
	line("#!/bin/sh")
	line("# Restarts the workloads whose pods have an old sidecar or none. Read it before you run it.")
	line("# By %s, %s: %s to restart.", cli.Inert(report.Configuration), cli.FormatTime(&report.Began), diagnostic.Count(len(list), "workload"))
	for _, text := range report.Unjudged {
		line("# Not judged: %s", cli.Inert(text))
	}
	line("set -eu")
	kubectl := "kubectl" + f.ContextFlags.Words()
	size := f.wave.size(len(list))
	waves := (len(list) + size - 1) / size
	for n := range waves {
		one := list[n*size : min((n+1)*size, len(list))]
		line("")
		if waves > 1 {
			line("# wave %d of %d", n+1, waves)
		}
		command := func(verb string, w *workload) {
			line("%s -n %s rollout %s %s", kubectl, shell.Quote(w.namespace), verb, shell.Quote(strings.ToLower(w.Kind)+"/"+w.Name))
		}
		for i := range one {
			line("# %s: %s", one[i].title(), r.states(one[i]))
			command("restart", &one[i])
		}
		for i := range one {
			if n < waves-1 { // the next wave begins when this one is up
				command("status", &one[i])
			}
		}
	}
	if len(others) > 0 {
		line("")
		line("# not restarted:")
	}
	for i := range others {
		line("# %s: %s: %s", others[i].title(), r.states(others[i]), others[i].whyNot())
	}
}
