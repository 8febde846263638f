package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// attentionItem is a problem, or a notice of one that will or may come.
type attentionItem struct {
	// Class is "bad" for what fails now, and "notice" for what will or may.
	Class string
	// About is what it is about, and Text what is the matter with it.
	About, Text string
	// URL is a page with more about it, "" for none.
	URL string
}

// Word returns the class as a word.
func (i *attentionItem) Word() string {
	if i.Class == "bad" {
		return "problem"
	}
	return "notice"
}

// attentionData is what the part shows.
type attentionData struct {
	Items []attentionItem
	Pages pager
	// IsPartial reports whether something could not be read, so that the list may be incomplete.
	IsPartial bool
}

// showAttention reads everything concurrently: each may wait for its own answer.
func (c *console) showAttention(r *http.Request) (partData, error) {
	var (
		mu    sync.Mutex
		all   []attentionItem
		notes []string
		group sync.WaitGroup
	)
	for _, read := range []func(context.Context) ([]attentionItem, []string){c.replicasAttention, c.policiesAttention, c.exceptionsAttention, c.tokensAttention} {
		group.Go(func() {
			items, missing := read(r.Context())
			mu.Lock()
			defer mu.Unlock()
			all, notes = append(all, items...), append(notes, missing...)
		})
	}
	group.Wait()
	slices.SortFunc(all, func(a, b attentionItem) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.About, b.About), strings.Compare(a.Text, b.Text))
	})
	slices.Sort(notes)
	data := &attentionData{IsPartial: len(notes) > 0}
	data.Items, data.Pages = paginate(r, "attention", all)
	return partData{Data: data, Notes: slices.Compact(notes)}, nil
}

// replicasAttention returns what the pods and metrics of the replicas say.
func (c *console) replicasAttention(ctx context.Context) ([]attentionItem, []string) {
	s, notes, err := c.look(ctx)
	if err != nil {
		return nil, []string{explain(err)}
	}
	return sampleAttention(s), notes
}

func sampleAttention(s *sample) (items []attentionItem) {
	add := func(class, about, format string, args ...any) {
		items = append(items, attentionItem{Class: class, About: about, Text: fmt.Sprintf(format, args...)})
	}
	for _, row := range replicaRows(s) {
		about := "replica " + row.Name
		if !row.Ready {
			add("bad", about, "%s", row.State)
		}
		if row.Failed {
			add("bad", about, "its newest configuration has errors and is not active")
		}
		if row.Differs {
			add("notice", about, "has another configuration than most replicas: %s", shortDigest(row.Digest))
		}
	}
	for _, replica := range s.names() {
		m, about := s.metrics[replica], "replica "+replica
		for _, one := range m.Series("gatehouse_certificate_not_after_timestamp_seconds") {
			if subject := one.Labels["subject"]; secondsTime(one.Value).Sub(s.at) < soonOf(subject) {
				add("bad", about, "the %s ends at %s", subject, formatSeconds(one.Value))
			}
		}
		if since, _ := m.Value("gatehouse_record_failing_since_timestamp_seconds"); since > 0 {
			add("bad", about, "has recorded nothing since %s", formatSeconds(since))
		}
		dropped := 0.0
		for _, n := range m.SumBy("gatehouse_record_dropped_total", "reason") {
			dropped += n
		}
		if dropped > 0 {
			add("notice", about, "has not recorded %.0f reviews since it started", dropped)
		}
	}
	for _, about := range gauge("gatehouse_ca_bundle_trusted", isZero, "kind", "name")(s) {
		add("bad", about, "the webhook configuration does not trust the certificate of the replica")
	}
	return items
}

// bindingKind is the kind of bindings, which have no page.
const bindingKind = "AdmissionPolicyBinding"

// policiesAttention returns policies, bindings and profiles that are not active, or degraded.
func (c *console) policiesAttention(ctx context.Context) (items []attentionItem, notes []string) {
	client, err := c.client()
	if err != nil {
		return nil, []string{explain(err)}
	}
	for _, of := range []struct{ kind, resource string }{{admissionPolicyKind, "admissionpolicies"}, {bindingKind, "admissionpolicybindings"}, {profileKind, "sidecarprofiles"}} {
		objects, err := list[withStatus](ctx, client, v1alpha1.GroupVersion.WithResource(of.resource), "", "")
		if err != nil {
			notes = append(notes, explain(err))
			continue
		}
		for i := range objects {
			url := "/policies"
			if of.kind != bindingKind {
				url = policyURL(of.kind, objects[i].Name)
			}
			items = append(items, statusAttention(of.kind+" "+objects[i].Name, url, objects[i].Status.Conditions)...)
		}
	}
	return items, notes
}

// statusAttention returns what the conditions of an object say.
func statusAttention(about, url string, conditions []metav1.Condition) (items []attentionItem) {
	for i := range conditions {
		switch c := &conditions[i]; {
		case c.Type == v1alpha1.ReadyCondition && c.Status == metav1.ConditionFalse:
			items = append(items, attentionItem{"bad", about, "is not active: " + cmp.Or(c.Message, c.Reason), url})
		case c.Type == v1alpha1.DegradedCondition && c.Status == metav1.ConditionTrue:
			items = append(items, attentionItem{"notice", about, "is degraded: " + cmp.Or(c.Message, c.Reason), url})
		}
	}
	return items
}

// exceptionsAttention returns exceptions that end soon, or are not active.
func (c *console) exceptionsAttention(ctx context.Context) (items []attentionItem, notes []string) {
	client, err := c.client()
	if err != nil {
		return nil, []string{explain(err)}
	}
	namespaces := c.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		exceptions, err := list[v1alpha1.PolicyException](ctx, client, v1alpha1.GroupVersion.WithResource("policyexceptions"), namespace, "")
		if err != nil {
			text := explain(err)
			if namespace == "" {
				text += " (hint: gatehouse console --namespace NAME lists those of a namespace)"
			}
			notes = append(notes, text)
			continue
		}
		for i := range exceptions {
			x := &exceptions[i]
			about, ends := exceptionKind+" "+x.Namespace+"/"+x.Name, newExpiry(x.Spec.ExpiresAt, c.now())
			switch ends.Class {
			case "bad":
				continue // it has ended, as it should
			case "notice":
				items = append(items, attentionItem{"notice", about, ends.Text, "/policies"})
			}
			items = append(items, statusAttention(about, "/policies", x.Status.Conditions)...)
		}
	}
	return items, notes
}

// tokensAttention returns access tokens that expire soon.
func (c *console) tokensAttention(ctx context.Context) (items []attentionItem, notes []string) {
	tokens, notes := c.tokens(ctx)
	expire := 0
	for i := range tokens {
		if tokens[i].Expiry.Class == "notice" && tokens[i].State != "revoked" {
			expire++
		}
	}
	if expire > 0 {
		items = append(items, attentionItem{"notice", "access tokens", diagnostic.Count(expire, "token") + " will expire within 7 days", "/login#tokens"})
	}
	return items, notes
}
