package rules

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs/webhookconfig"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	managerPrefix = "gatehouse-registration:"
	// installer is the field manager of Helm, which renders the rules that it finds in the cluster. A change that it has
	// just missed is written again.
	installer = "helm"
)

// FieldManager returns the field manager of an install.
func FieldManager(install string) string { return managerPrefix + install }

// fieldNames are the fields of a webhook that are written.
func fieldNames() []string { return []string{"rules", "namespaceSelector", "objectSelector"} }

// webhook is what a webhook of a configuration has in these fields.
type webhook struct {
	name                string
	rules               []admissionregistrationv1.RuleWithOperations
	namespaces, objects *metav1.LabelSelector
	sent                registration.Requests
}

// configuration is a webhook configuration, with the webhooks whose rules depend on policies.
type configuration struct {
	kind webhookconfig.Kind
	meta *metav1.ObjectMeta
	// names are those that it should have.
	names    []string
	webhooks []webhook
}

// read returns the configurations of a name that exist and are not being deleted.
func (p *Publisher) read(ctx context.Context, name string) ([]*configuration, error) {
	var found []*configuration
	for _, kind := range webhookconfig.Kinds() {
		read, err := kind.Get(ctx, p.cfg.Client.AdmissionregistrationV1().RESTClient(), name)
		switch {
		case apierrors.IsNotFound(err), err == nil && read.DeletionTimestamp != nil:
			continue
		case err != nil:
			return nil, err
		}
		c := &configuration{kind: kind, meta: &read.ObjectMeta, names: registration.ValidatingNames()}
		if kind == webhookconfig.Mutating {
			c.names = registration.MutatingNames()
		}
		for i := range read.Webhooks {
			w := &read.Webhooks[i]
			c.add(w.Name, w.Rules, w.NamespaceSelector, w.ObjectSelector)
		}
		found = append(found, c)
	}
	return found, nil
}

func (c *configuration) add(name string, rules []admissionregistrationv1.RuleWithOperations, namespaces, objects *metav1.LabelSelector) {
	if slices.Contains(c.names, name) {
		c.webhooks = append(c.webhooks, webhook{name, rules, namespaces, objects, registration.RequestsOf(rules, namespaces, objects)})
	}
}

func (c *configuration) String() string { return string(c.kind) + " " + c.meta.Name }

// plan is a configuration and the patch that makes it as desired.
type plan struct {
	*configuration

	patch []byte
}

// foreignField is a field that another manager has set to something else than what is needed.
type foreignField struct{ configuration, webhook, field, manager string }

// plansOf returns what is to be written, the fields that are left to other managers, and why something cannot be written.
func plansOf(found []*configuration, desired registration.Needs, manager string) (plans []plan, foreign []foreignField, problems []string) {
	for _, c := range found {
		excluded, err := registration.ParseExcluded(c.meta.Annotations)
		if err != nil {
			problems = append(problems, c.String()+": "+err.Error())
		}
		differs := false
		var list []map[string]any
		for i := range c.webhooks {
			w := &c.webhooks[i]
			if err != nil {
				continue
			}
			fields, left, changed := c.fieldsOf(w, desired[w.name], excluded, manager)
			fields["name"] = w.name
			list, foreign, differs = append(list, fields), append(foreign, left...), differs || changed
		}
		if !differs {
			continue
		}
		patch, _ := json.Marshal(map[string]any{ //nolint:errchkjson // API types can be encoded
			"apiVersion": admissionregistrationv1.SchemeGroupVersion.String(), "kind": c.kind,
			"metadata": map[string]any{"name": c.meta.Name, "resourceVersion": c.meta.ResourceVersion}, "webhooks": list,
		})
		plans = append(plans, plan{c, patch})
	}
	return plans, foreign, problems
}

// missing returns a problem for each webhook that is needed and does not exist.
func missing(found []*configuration, needs registration.Needs) (problems []string) {
	exists := map[string]bool{}
	for _, c := range found {
		for i := range c.webhooks {
			exists[c.webhooks[i].name] = true
		}
	}
	for _, name := range slices.Concat(registration.MutatingNames(), registration.ValidatingNames()) {
		if len(needs[name].Rules) > 0 && !exists[name] {
			problems = append(problems, fmt.Sprintf("there is no webhook %q, and Gatehouse adds none (hint: apply the output of gatehouse manifests --manage-registration again)", name))
		}
	}
	return problems
}

// fieldsOf returns the fields of a webhook to apply, those that are left to another manager, and whether the first differ
// from the webhook's fields. Server-side apply removes a field of this manager that the patch lacks: the patch repeats all fields but
// those that are left to another manager.
//
// A webhook that this install has never written is taken over whole, even if its fields are as needed: an earlier install wrote them,
// and they would go when that one does not apply them any more. After that, a field that another manager sets to other content is left
// to it, for as long as it manages the field.
func (c *configuration) fieldsOf(w *webhook, needs registration.Requests, excluded []string, manager string) (fields map[string]any, left []foreignField, changed bool) {
	namespaces, objects := needs.Selectors(excluded)
	if needs.Rules == nil {
		needs.Rules = []admissionregistrationv1.RuleWithOperations{}
	}
	wanted := map[string]any{"rules": needs.Rules, "namespaceSelector": namespaces, "objectSelector": objects}
	is := map[string]bool{
		"rules":             equality.Semantic.DeepEqual(needs.Rules, w.rules),
		"namespaceSelector": equality.Semantic.DeepEqual(namespaces, w.namespaces),
		"objectSelector":    equality.Semantic.DeepEqual(objects, w.objects),
	}
	known := slices.Contains(c.managers(w.name, "name"), manager)
	fields, changed = map[string]any{}, !known
	for _, field := range fieldNames() {
		managers := c.managers(w.name, field)
		others := slices.DeleteFunc(slices.Clone(managers), func(m string) bool { return m == manager || m == installer })
		if known && !is[field] && len(others) > 0 && !slices.Contains(managers, manager) {
			left = append(left, foreignField{c.String(), w.name, field, others[0]})
			continue
		}
		fields[field] = wanted[field]
		changed = changed || !is[field]
	}
	return fields, left, changed
}

// managers returns the field managers of a field of a webhook.
func (c *configuration) managers(webhook, field string) []string {
	var list []string
	for _, f := range webhookconfig.Managers(c.meta.ManagedFields, webhook, field) {
		list = append(list, f.Manager)
	}
	return list
}

// write applies patches. Nothing is left to write to an object that is gone by now, of which the API server says that the
// patch is invalid.
func (p *Publisher) write(ctx context.Context, plans []plan) error {
	for _, one := range plans {
		err := one.kind.Apply(ctx, p.cfg.Client.AdmissionregistrationV1().RESTClient(), one.meta.Name, FieldManager(p.cfg.Install), one.patch)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w", one.configuration, err)
		}
	}
	return nil
}

// describeForeign names who has set fields, for people.
func describeForeign(fields []foreignField) string {
	slices.SortFunc(fields, func(a, b foreignField) int {
		return cmp.Or(cmp.Compare(a.configuration, b.configuration), cmp.Compare(a.webhook, b.webhook), cmp.Compare(a.field, b.field))
	})
	var texts []string
	for _, f := range fields[:min(len(fields), maxNamed)] {
		who := fmt.Sprintf("field manager %q", truncate.Bytes(f.manager, 100))
		if install, is := strings.CutPrefix(f.manager, managerPrefix); is {
			who = fmt.Sprintf("another install of Gatehouse, in namespace %q,", truncate.Bytes(install, 100))
		}
		texts = append(texts, fmt.Sprintf("%s has set %s of webhook %q in %s", who, f.field, f.webhook, f.configuration))
	}
	return strings.Join(texts, "; ") + " (hint: remove the field from what it applies, and Gatehouse writes it again)"
}
