package drill

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Dependency is something that does not start without something else.
type Dependency struct {
	// From and To are what depends and on what: a Service that answers webhooks, NAMESPACE/NAME; the network or storage drivers of nodes, or
	// cert-manager, as the title of a workload.
	From string `json:"from"`
	To   string `json:"to"`
	Why  Why    `json:"why"`
	// By is the webhook, if it is one.
	By string `json:"by,omitempty"`
}

// Why is the reason of a dependency.
type Why string

// The reasons.
const (
	// ByWebhook: the webhook of the other must answer before the pods can be created.
	ByWebhook Why = "webhook"
	// ByNetwork and ByStorage: the pods do not start before the driver runs on their node.
	ByNetwork Why = "network"
	ByStorage Why = "storage"
	// ByCertificate: cert-manager issues the serving certificate.
	ByCertificate Why = "certificate"
)

// Cycle are things that wait for each other after an outage of all.
type Cycle struct {
	Members []string `json:"members"`
	// Certificate reports whether it closes only when a certificate ends.
	Certificate bool `json:"certificate,omitempty"`
}

// vertex is something that others depend on, and the pods that run it.
type vertex struct {
	name  string
	role  Why // ByWebhook, ByNetwork, ByStorage or ByCertificate
	pods  []*podGroup
	hooks []*hook
}

// certManagerAnnotation begins the annotations by which cert-manager writes the caBundle of a webhook configuration.
const certManagerAnnotation = "cert-manager.io/inject-"

// vertices returns what the graph is made of, in a fixed order.
func (d *Drill) vertices() (list []*vertex) {
	at := map[string]*vertex{}
	issued := false
	for _, h := range d.cluster.hooks {
		if service, _ := h.service(); service == nil {
			continue
		}
		v := at[h.backend()]
		if v == nil {
			v = &vertex{name: h.backend(), role: ByWebhook, pods: d.backendPods(h)}
			at[v.name], list = v, append(list, v)
		}
		v.hooks = append(v.hooks, h)
		issued = issued || h.isIssued()
	}
	for _, g := range d.cluster.groups(func(*podGroup) bool { return true }) {
		role := Why("")
		switch {
		case g.nodeRole() == "CNI":
			role = ByNetwork
		case g.nodeRole() == "CSI":
			role = ByStorage
		case issued && g.isCertManager():
			role = ByCertificate
		}
		if role != "" {
			list = append(list, &vertex{name: g.title(), role: role, pods: []*podGroup{g}})
		}
	}
	slices.SortFunc(list, func(a, b *vertex) int { return cmp.Compare(a.name, b.name) })
	return list
}

// isIssued reports whether cert-manager issues the certificate of the webhook.
func (h *hook) isIssued() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(h.annotations)), func(name string) bool { return strings.HasPrefix(name, certManagerAnnotation) })
}

// isCertManager reports whether the pods run cert-manager's controllers: they are known by their image alone.
func (g *podGroup) isCertManager() bool {
	for i := range g.spec.Containers {
		image := g.spec.Containers[i].Image
		name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
		if name, _, _ = strings.Cut(name, "@"); name == "cert-manager-controller" || name == "cert-manager-cainjector" {
			return true
		}
	}
	return false
}

// maxVertices bounds the graph, whose edges may be the square of that.
const maxVertices = 300

// findDependencies fills in what depends on what, and adds a finding for each cycle.
func (d *Drill) findDependencies(ctx context.Context) error {
	vertices := d.vertices()
	if len(vertices) > maxVertices {
		d.addUnknown("graph", "there are more than %d Services behind webhooks and drivers of nodes: their dependencies are left out", maxVertices)
		return nil
	}
	type edge struct{ from, to int }
	edges := map[edge]Dependency{}
	add := func(from, to int, why Why, by string) {
		if _, has := edges[edge{from, to}]; !has {
			edges[edge{from, to}] = Dependency{vertices[from].name, vertices[to].name, why, by}
		}
	}
	for from, v := range vertices {
		for _, g := range v.pods {
			created := probes{}
			created.addPods(g)
			r, err := d.newRequest(&created.list[0].Request)
			if err != nil {
				continue // it was reported before
			}
			for to, other := range vertices {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				for _, h := range other.hooks {
					if c, _, _ := h.calls(ctx, r); h.fails && c == called {
						add(from, to, ByWebhook, h.title())
					}
				}
				switch {
				case from == to:
				case other.role == ByNetwork && !g.spec.HostNetwork, other.role == ByStorage && g.usesStorage():
					add(from, to, other.role, "")
				case other.role == ByCertificate && slices.ContainsFunc(v.hooks, (*hook).isIssued):
					add(from, to, ByCertificate, "")
				}
			}
		}
	}
	hard := make([][]int, len(vertices))
	all := make([][]int, len(vertices))
	for _, e := range slices.SortedFunc(maps.Keys(edges), func(a, b edge) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) }) {
		d.report.Dependencies = append(d.report.Dependencies, edges[e])
		if all[e.from] = append(all[e.from], e.to); edges[e].Why != ByCertificate {
			hard[e.from] = append(hard[e.from], e.to)
		}
	}
	closed := d.addCycles(vertices, components(hard), nil)
	d.addCycles(vertices, components(all), closed)
	return nil
}

// addCycles adds a finding to the webhooks of each cycle, and returns them by their members. Those of closed are not added again.
func (d *Drill) addCycles(vertices []*vertex, cycles [][]int, closed map[string]bool) map[string]bool {
	found := map[string]bool{}
	for _, members := range cycles {
		var names []string
		for _, i := range members {
			names = append(names, vertices[i].name)
		}
		key := strings.Join(names, " ")
		if found[key] = true; closed[key] {
			continue
		}
		d.report.Cycles = append(d.report.Cycles, Cycle{names, closed != nil})
		code := MutualDependence
		if closed != nil {
			code = CertificateDependence
		}
		for _, i := range members {
			for _, h := range vertices[i].hooks {
				needed := slices.ContainsFunc(d.report.Dependencies, func(on Dependency) bool { return on.By == h.title() && slices.Contains(names, on.From) })
				if needed {
					d.subjects[h].add(code, nil, "these wait for each other: %s", strings.Join(names, ", "))
				}
			}
		}
	}
	return found
}

// usesStorage reports whether the pods mount volumes of a storage driver.
func (g *podGroup) usesStorage() bool {
	for i := range g.spec.Volumes {
		if v := &g.spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.CSI != nil || v.Ephemeral != nil {
			return true
		}
	}
	return false
}

// components returns what can be reached from each other, of more than one vertex, in ascending order. maxVertices bounds the work.
func components(edges [][]int) (found [][]int) {
	reaches := make([][]bool, len(edges))
	for from := range edges {
		reaches[from] = make([]bool, len(edges))
		for _, to := range edges[from] {
			reaches[from][to] = true
		}
	}
	for by := range edges {
		for from := range edges {
			for to := range edges {
				reaches[from][to] = reaches[from][to] || reaches[from][by] && reaches[by][to]
			}
		}
	}
	for i := range edges {
		members := []int{i}
		for k := range edges {
			if k != i && reaches[i][k] && reaches[k][i] {
				members = append(members, k)
			}
		}
		if len(members) > 1 && members[0] == slices.Min(members) {
			found = append(found, members)
		}
	}
	return found
}

// WriteDOT writes the dependencies for Graphviz. What is in a cycle is red.
func (r *Report) WriteDOT(out io.Writer) {
	_, _ = fmt.Fprint(out, "digraph drill {\n  rankdir=LR\n  node [shape=box]\n") // a buffered writer returns errors when it is flushed, here and below
	ids := r.names()
	for _, name := range ids {
		style := ""
		if r.inCycle(name, name) {
			style = " [color=red]"
		}
		_, _ = fmt.Fprintf(out, "  %s%s\n", strconv.Quote(name), style)
	}
	for _, d := range r.Dependencies {
		style := ""
		if r.inCycle(d.From, d.To) {
			style = ", color=red"
		}
		_, _ = fmt.Fprintf(out, "  %s -> %s [label=%s%s]\n", strconv.Quote(d.From), strconv.Quote(d.To), strconv.Quote(string(d.Why)), style)
	}
	_, _ = fmt.Fprint(out, "}\n")
}

// WriteMermaid writes the dependencies as a Mermaid flowchart. Edges in a cycle are thick.
func (r *Report) WriteMermaid(out io.Writer) {
	_, _ = fmt.Fprint(out, "flowchart LR\n")
	ids := r.names()
	for i, name := range ids {
		// Mermaid has no escape for quotes but entities.
		_, _ = fmt.Fprintf(out, "  n%d[\"%s\"]\n", i, strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "\n", " ", "\r", " ").Replace(name))
	}
	for _, d := range r.Dependencies {
		arrow := "-->"
		if r.inCycle(d.From, d.To) {
			arrow = "==>"
		}
		_, _ = fmt.Fprintf(out, "  n%d %s|%s| n%d\n", slices.Index(ids, d.From), arrow, d.Why, slices.Index(ids, d.To))
	}
}

// names returns what the dependencies are about, sorted.
func (r *Report) names() []string {
	var names []string
	for _, d := range r.Dependencies {
		names = append(names, d.From, d.To)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// inCycle reports whether a dependency is on itself, or in a cycle.
func (r *Report) inCycle(from, to string) bool {
	for _, d := range r.Dependencies {
		if from == to && d.From == from && d.To == to {
			return true
		}
	}
	return slices.ContainsFunc(r.Cycles, func(c Cycle) bool { return slices.Contains(c.Members, from) && slices.Contains(c.Members, to) })
}
