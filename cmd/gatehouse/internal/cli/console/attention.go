package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// attentionItem is a problem, or a notice of one that will or may come.
type attentionItem struct {
	// Class is "bad" for what fails now, and "notice" for what will or may.
	Class string
	// About is what it is about, and Text what is the matter with it.
	About, Text string
}

// attentionData is what the part shows.
type attentionData struct {
	Items []attentionItem
	Pages pager
}

// showAttention shows custom resources that are not active, degraded, or expire soon.
func (c *console) showAttention(r *http.Request) (partData, error) {
	objects, errs := c.statuses(r.Context())
	var all []attentionItem
	for key, object := range objects {
		about := strings.Trim(key.namespace+"/"+key.name, "/")
		add := func(class, text string) {
			all = append(all, attentionItem{class, key.kind + " " + about, text})
		}
		for i := range object.Status.Conditions {
			switch c := &object.Status.Conditions[i]; {
			case c.Type == v1alpha1.ReadyCondition && c.Status == metav1.ConditionFalse:
				add("bad", "is not active: "+cmp.Or(c.Message, c.Reason))
			case c.Type == v1alpha1.DegradedCondition && c.Status == metav1.ConditionTrue:
				add("notice", "is degraded: "+cmp.Or(c.Message, c.Reason))
			}
		}
		if ends := newExpiry(object.Spec.ExpiresAt, c.now()); ends.Class == "notice" {
			add("notice", ends.Text)
		}
	}
	slices.SortFunc(all, func(a, b attentionItem) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.About, b.About), strings.Compare(a.Text, b.Text))
	})
	data := &attentionData{}
	data.Items, data.Pages = paginate(r, "attention", all)
	return partData{Data: data, Notes: explainAll(errs)}, nil
}
