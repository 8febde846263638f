package convert

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/pattern"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
)

// target is a resource that a rule matches.
type target struct {
	group, version, resource, kind string
	// connect reports whether requests for it are connections.
	connect bool
	// scope is that of its objects, and "" if it is not known.
	scope apiextensionsv1.ResourceScope
	// guessed reports whether the resource is the usual plural of the kind.
	guessed bool
	// of is the Go type of its objects, nil if it is not known.
	of reflect.Type
}

// assumed says that the resource is guessed.
func (t target) assumed() string {
	return fmt.Sprintf("the resource of the kind %s is assumed to be %q", t.kind, t.resource)
}

var versionForm = regexp.MustCompile(`^(v\d+((alpha|beta)\d+)?|\*)$`)

// splitKind splits Kyverno's name of a kind: group/version/Kind/subresource, of which Kind alone is needed.
func splitKind(name string) (group, version, kind, subresource string) {
	parts := strings.Split(name, "/")
	last := strings.Split(parts[len(parts)-1], ".")
	parts = append(parts[:len(parts)-1], last...)
	group, version = "*", "*"
	n, hasVersion := len(parts), versionForm.MatchString(parts[0])
	switch isSubresource := n == 2 && parts[0] == "*" && strings.ToLower(parts[1]) == parts[1]; {
	case n > 3, n == 3 && !hasVersion:
		group, version, parts = parts[0], parts[1], parts[2:]
	case n > 1 && hasVersion && !isSubresource:
		version, parts = parts[0], parts[1:]
	}
	return group, version, parts[0], strings.Join(parts[1:], "")
}

//nolint:gochecknoglobals // they are made once
var (
	resources = sync.OnceValue(func() *request.Resources { return request.NewResources(nil) })
	builtins  = sync.OnceValue(func() []schema.GroupVersionKind { return sortedKinds(builtin.Scheme().AllKnownTypes()) })
)

// readKinds reads the kinds that the documents define, besides those of Kubernetes and of the options.
func (c *converter) readKinds(objects []*manifest.Object) {
	known := map[schema.GroupVersionKind]request.Resource{}
	for _, o := range objects {
		if kind := o.GroupVersionKind(); kind.Group != "apiextensions.k8s.io" || kind.Kind != "CustomResourceDefinition" {
			continue
		}
		if of, err := decodeJSON(o.JSON()); err == nil {
			crd, _ := of.(map[string]any)
			scope, _, _ := unstructured.NestedString(crd, "spec", "scope") // a wrong one is namespaced
			request.Versions(crd, func(kind schema.GroupVersionKind, plural string, _ map[string]any) {
				known[kind] = request.Resource{Name: plural, ClusterScoped: scope == "Cluster"}
			})
		}
	}
	maps.Copy(known, c.options.Kinds)
	c.resources = resources().With(known)
	c.kinds = slices.Concat(builtins(), sortedKinds(known))
}

func sortedKinds[V any](of map[schema.GroupVersionKind]V) []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(of), func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
}

// irregular are resources of widely used kinds whose plural does not follow from the kind.
const irregular = `config.openshift.io DNS dnses, operator.openshift.io DNS dnses, ceph.rook.io CephNFS cephnfses, monitoring.coreos.com Prometheus prometheuses,
consul.hashicorp.com ExportedServices exportedservices, consul.hashicorp.com ProxyDefaults proxydefaults, kubedb.com Redis redises,
consul.hashicorp.com ServiceDefaults servicedefaults, consul.hashicorp.com ServiceIntentions serviceintentions, redis.redis.opstreelabs.in Redis redis,
k8s.cni.cncf.io NetworkAttachmentDefinition network-attachment-definitions, metrics.k8s.io NodeMetrics nodes, metrics.k8s.io PodMetrics pods,
security.openshift.io SecurityContextConstraints securitycontextconstraints`

// others returns the resources of a kind that is not known: those of widely used kinds, or the usual plural if it is certain enough.
func others(group, version, kind string) (found []target) {
	for one := range strings.SplitSeq(irregular, ",") {
		if of := strings.Fields(one); kind == of[1] && pattern.MatchWildcard(group, of[0]) {
			found = append(found, target{group: of[0], version: version, resource: of[2], kind: kind})
		}
	}
	as, name := resources().Of(schema.GroupVersionKind{Group: group, Version: version, Kind: kind}), strings.ToLower(kind)
	isPlural := strings.HasSuffix(name, "s") && !strings.HasSuffix(name, "ss") || strings.HasSuffix(name, "x") || strings.HasSuffix(name, "z")
	if len(found) == 0 && !isPlural && !strings.ContainsAny(kind, "*?") {
		found = []target{{group: group, version: version, resource: as.Name, kind: kind, guessed: true}}
	}
	return found
}

// targetsOf returns the resources of a kind.
func (c *converter) targetsOf(name string) ([]target, error) {
	group, version, kind, sub := splitKind(name)
	suffix := strings.TrimSuffix("/"+sub, "/")
	connect := slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, sub)
	if kind == "*" {
		return []target{{group: group, version: version, resource: "*" + suffix, kind: "*", connect: connect}}, nil
	}
	var found []target
	for _, gvk := range c.kinds {
		as := c.resources.Of(gvk)
		if as.Guessed || !pattern.MatchWildcard(group, gvk.Group) || !pattern.MatchWildcard(version, gvk.Version) || !pattern.MatchWildcard(kind, gvk.Kind) {
			continue
		}
		t := target{group: gvk.Group, version: gvk.Version, resource: as.Name, kind: gvk.Kind, scope: apiextensionsv1.NamespaceScoped}
		if as.ClusterScoped {
			t.scope = apiextensionsv1.ClusterScoped
		}
		if sub == "" || sub == "status" || sub == "ephemeralcontainers" || sub == "resize" {
			t.of = builtin.Scheme().AllKnownTypes()[gvk]
		}
		found = append(found, t)
	}
	// Versions that are served beside a stable one are left out, unless the rule names a version.
	all, isStable := slices.Clone(found), func(t target) bool { return !strings.Contains(t.version, "a") } // neither alpha nor beta
	found = slices.DeleteFunc(found, func(t target) bool {
		return version == "*" && !isStable(t) && slices.ContainsFunc(all, func(o target) bool { return o.kind == t.kind && isStable(o) })
	})
	if len(found) == 0 {
		found = others(group, version, kind)
	}
	for i := range found {
		found[i].resource, found[i].connect, found[i].guessed = found[i].resource+suffix, connect, found[i].guessed && sub == ""
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the kind %q, whose resource is not known", name)
	}
	return found, nil
}

// matched is what the filters of a rule come to.
type matched struct {
	targets []target
	// operations are those of all targets.
	operations []admissionregistrationv1.OperationType
	// rules select requests by resource and operation.
	rules []admissionregistrationv1.NamedRuleWithOperations
	// selector is that of namespaces, and nil for all.
	selector *metav1.LabelSelector
	// conditions must hold besides, each with what it is about.
	conditions []guard
}

// guard is a condition with its name.
type guard struct {
	name string
	expr celexpr.Expr
}

// takeLate removes the conditions that need the namespace, which match conditions do not have, and returns their conjunction.
func (m *matched) takeLate() celexpr.Expr {
	var late []celexpr.Expr
	m.conditions = slices.DeleteFunc(m.conditions, func(g guard) bool {
		isLate := g.expr.Mentions("namespaceObject")
		if isLate {
			late = append(late, g.expr)
		}
		return isLate
	})
	return celexpr.And(late...)
}

// types returns what is known of the object.
func (m *matched) types() celexpr.Type {
	var all []reflect.Type
	for _, t := range m.targets {
		if t.of == nil {
			return celexpr.Object()
		}
		all = union(all, t.of)
	}
	return celexpr.Object(all...)
}

// block is the meaning of one filter.
type block struct {
	targets    []target
	operations []string
	selector   *metav1.LabelSelector
	conditions []guard
}

// guards returns all conditions, with those of the kinds and of the operations if they count.
func (b *block) guards(kinds, operations bool) (all []guard) {
	if operations && len(b.operations) > 0 {
		all = append(all, guard{"operation", celexpr.In(celexpr.Raw("request.operation"), texts(b.operations)...)})
	}
	var names []string
	for _, t := range b.targets {
		names = union(names, t.kind)
	}
	if kinds && len(names) > 0 && !slices.Contains(names, "*") {
		all = append(all, guard{"kind", celexpr.In(celexpr.Raw("request.kind.kind"), texts(names)...)})
	}
	return append(all, b.conditions...)
}

// condition returns the conjunction of the guards.
func (b *block) condition(kinds, operations bool) celexpr.Expr {
	e := celexpr.True
	for _, g := range b.guards(kinds, operations) {
		e = celexpr.And(e, g.expr)
	}
	return e
}

// unsupported returns the error of a construct at a field of the rule.
func unsupported(field, instead, format string, args ...any) error {
	return &jmespath.UnsupportedError{Path: strict.Steps(field), Construct: fmt.Sprintf(format, args...), Instead: instead}
}

// metadata returns a field of the metadata of an object as an optional value.
func metadata(object celexpr.Expr, name string) celexpr.Expr {
	return celexpr.OptField(celexpr.Field(object, "metadata"), name)
}

// readFilter translates a filter. One without kinds is about those of the rule, or about all.
func (c *converter) readFilter(f *filter, field string, object celexpr.Expr, ofRule ...target) (*block, error) {
	b := &block{operations: f.Resources.Operations}
	if len(f.Roles)+len(f.ClusterRoles) > 0 {
		return nil, unsupported(field, "name the users and groups in subjects, or ask authorizer in a match condition",
			"roles of the user, which Kyverno looks up in the cluster")
	}
	r := &f.Resources
	at := field + ".resources"
	for i, kind := range r.Kinds {
		targets, err := c.targetsOf(kind)
		if err != nil {
			return nil, unsupported(fmt.Sprintf("%s.kinds[%d]", at, i), "name the kinds, and convert them together with their CustomResourceDefinitions, or with --context", "%s", err)
		}
		b.targets = union(b.targets, targets...)
	}
	about := ofRule
	if len(b.targets) > 0 {
		about = b.targets
	}
	names := r.Names
	if r.Name != "" { // there are not both
		names = []string{r.Name}
	}
	if len(names) > 0 {
		name := celexpr.Call(celexpr.Call(metadata(object, "name"), "or", metadata(object, "generateName")), "orValue", celexpr.Str(""))
		if slices.ContainsFunc(b.targets, func(t target) bool { return t.connect }) {
			name = celexpr.Field(celexpr.Raw("request"), "name")
		}
		b.conditions = append(b.conditions, guard{"name", anyOf(name, names)})
	}
	isNamespace, isAny := func(t target) bool { return t.kind == "Namespace" }, func(t target) bool { return t.kind == "*" }
	inside := slices.DeleteFunc(slices.Clone(about), isNamespace)
	ofNamespace := celexpr.Eq(celexpr.Raw("request.kind.kind"), celexpr.Str("Namespace"))
	if len(r.Namespaces) > 0 {
		namespace := namespaceOf(about)
		switch {
		case len(inside) == 0 && len(about) > 0:
			namespace = celexpr.Raw("request.name")
		case len(inside) < len(about) || slices.ContainsFunc(about, isAny):
			namespace = celexpr.If(ofNamespace, celexpr.Raw("request.name"), namespace)
		}
		b.conditions = append(b.conditions, guard{"namespace", anyOf(namespace, r.Namespaces)})
	}
	for _, key := range slices.Sorted(maps.Keys(r.Annotations)) {
		of := metadata(object, "annotations")
		b.conditions = append(b.conditions, guard{"annotation", labelCondition(of, key, r.Annotations[key])})
	}
	if r.Selector != nil {
		b.conditions = append(b.conditions, guard{"labels", selectorCondition(r.Selector, metadata(object, "labels"))})
	}
	if len(f.Subjects) > 0 {
		user, groups := celexpr.Raw("request.userInfo.username"), celexpr.Raw("request.userInfo.groups")
		var all []celexpr.Expr
		for _, s := range f.Subjects {
			switch {
			case s.Kind == rbacv1.UserKind:
				all = append(all, pattern.Wildcard(user, s.Name))
			case s.Kind == rbacv1.ServiceAccountKind:
				all = append(all, pattern.Wildcard(user, "system:serviceaccount:"+s.Namespace+":"+s.Name))
			case s.Kind == rbacv1.GroupKind && !strings.ContainsAny(s.Name, "*?"):
				all = append(all, celexpr.Rel(celexpr.Str(s.Name), "in", groups))
			case s.Kind == rbacv1.GroupKind:
				all = append(all, celexpr.Macro(groups, "exists", "group", pattern.Wildcard(celexpr.Raw("group"), s.Name)))
			default:
				return nil, unsupported(field+".subjects", "name a user, a group or a service account", "a subject of the kind %q", s.Kind)
			}
		}
		b.conditions = append(b.conditions, guard{"user", celexpr.Or(all...)})
	}
	if r.NamespaceSelector != nil {
		b.selector = r.NamespaceSelector
		if len(inside) == 0 && len(about) > 0 {
			b.conditions = append(b.conditions, guard{"kind", celexpr.False})
		} else if len(b.targets) == 0 && len(inside) < max(len(about), 1) || slices.ContainsFunc(about, isAny) {
			b.conditions = append(b.conditions, guard{"kind", celexpr.Not(ofNamespace)})
		}
		b.targets = slices.DeleteFunc(b.targets, isNamespace)
		// Kyverno takes what is in no namespace as if it were in one without labels.
		matches, has := selectorCondition(b.selector, celexpr.Raw("namespaceObject.metadata.?labels")), celexpr.Raw("has(request.namespace)")
		selector, err := metav1.LabelSelectorAsSelector(b.selector)
		if isAll := err == nil && selector.Matches(labels.Set{}); isAll && !areInside(inside) {
			matches = celexpr.Or(celexpr.Not(has), matches)
		} else if !areInside(inside) {
			b.conditions = append(b.conditions, guard{"namespace", has})
		}
		b.conditions = append(b.conditions, guard{"namespace", matches})
	}
	return b, nil
}

// areInside reports whether targets are certainly in namespaces.
func areInside(of []target) bool {
	return len(of) > 0 && !slices.ContainsFunc(of, func(t target) bool { return t.scope != apiextensionsv1.NamespaceScoped })
}

// namespaceOf returns the namespace of a request for targets, which expressions do not have at requests for what is in none.
func namespaceOf(targets []target) celexpr.Expr {
	if areInside(targets) {
		return celexpr.Raw("request.namespace")
	}
	return celexpr.Call(celexpr.Raw("request.?namespace"), "orValue", celexpr.Str(""))
}

// anyOf returns the condition that a string matches one of several texts with wildcards.
func anyOf(v celexpr.Expr, texts []string) celexpr.Expr {
	var literals, all []celexpr.Expr
	for _, text := range texts {
		if strings.ContainsAny(text, "*?") {
			all = append(all, pattern.Wildcard(v, text))
		} else {
			literals = append(literals, celexpr.Str(text))
		}
	}
	return celexpr.Or(append([]celexpr.Expr{celexpr.In(v, literals...)}, all...)...)
}

// labelCondition returns the condition that one of optional labels or annotations has this name and value, with wildcards in both.
func labelCondition(of celexpr.Expr, key, value string) celexpr.Expr {
	if !strings.ContainsAny(key, "*?") {
		member := celexpr.OptField(of, key)
		if value == "*" {
			return celexpr.Call(member, "hasValue")
		}
		if value == "" || strings.ContainsAny(value, "*?") {
			return celexpr.Call(celexpr.Macro(member, "optMap", "value", pattern.Wildcard(celexpr.Raw("value"), value)), "orValue", celexpr.False)
		}
		return celexpr.Eq(celexpr.Call(member, "orValue", celexpr.Str("")), celexpr.Str(value))
	}
	all := celexpr.Call(of, "orValue", celexpr.Raw("{}"))
	matches := celexpr.And(pattern.Wildcard(celexpr.Raw("key"), key), pattern.Wildcard(celexpr.At(all, celexpr.Raw("key")), value))
	return celexpr.Macro(all, "exists", "key", matches)
}

// selectorCondition returns the condition that optional labels match a selector.
func selectorCondition(s *metav1.LabelSelector, labels celexpr.Expr) celexpr.Expr {
	var all []celexpr.Expr
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, labelCondition(labels, key, s.MatchLabels[key]))
	}
	for _, r := range s.MatchExpressions {
		member := celexpr.OptField(labels, r.Key)
		has := celexpr.Call(member, "hasValue")
		in := celexpr.And(has, celexpr.In(celexpr.Call(member, "orValue", celexpr.Str("")), texts(r.Values)...))
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			all = append(all, in)
		case metav1.LabelSelectorOpNotIn:
			all = append(all, celexpr.Not(in))
		case metav1.LabelSelectorOpExists:
			all = append(all, has)
		case metav1.LabelSelectorOpDoesNotExist:
			all = append(all, celexpr.Not(has))
		}
	}
	return celexpr.And(all...)
}

// texts returns strings as literals.
func texts(all []string) []celexpr.Expr {
	out := make([]celexpr.Expr, len(all))
	for i, text := range all {
		out[i] = celexpr.Str(text)
	}
	return out
}

// all returns the alternatives of filters, with their fields below one, and whether one is enough.
func (f *filters) all(field string) (blocks []*filter, fields []string, oneOf bool) {
	list, name := f.Any, "any"
	if len(list) == 0 {
		list, name = f.All, "all"
	}
	for i := range list {
		blocks, fields = append(blocks, &list[i]), append(fields, fmt.Sprintf("%s.%s[%d]", field, name, i))
	}
	if len(list) == 0 {
		return []*filter{&f.filter}, []string{field}, true
	}
	return blocks, fields, name == "any"
}

// readMatch translates the filters of a rule. Operations are those of a filter that names none, and of all filters those count that are
// allowed.
func (c *ruleConverter) readMatch(operations, allowed []string) error {
	m := &matched{}
	c.matched = m
	var blocks []*block
	filters, fields, oneOf := c.rule.Match.all("match")
	if !oneOf && len(filters) > 1 {
		return unsupported("match.all", "join them in one", "several filters that must all match")
	}
	for i := range filters {
		b, err := c.readFilter(filters[i], fields[i], c.object)
		if err != nil {
			return err
		}
		if len(filters[i].Resources.Kinds) == 0 {
			return unsupported(fields[i], "name the kinds", "a filter without kinds")
		}
		if !b.condition(false, false).IsFalse() {
			blocks = append(blocks, b)
		}
	}
	if len(blocks) == 0 {
		return unsupported("match", "match the labels of the Namespace by a selector", "a rule that never applies: a namespaceSelector selects no Namespaces")
	}
	m.addBlocks(blocks, operations, allowed)
	if len(m.rules) == 0 {
		return unsupported("match", "remove the rule", "a rule that never applies: its operations exclude each other")
	}
	if err := c.addExclude(); err != nil {
		return err
	}
	for _, t := range m.targets {
		if t.guessed {
			c.notes = union(c.notes, t.assumed())
		}
	}
	return nil
}

// addBlocks adds the resources of all alternatives, and conditions for what they do not have in common.
func (m *matched) addBlocks(blocks []*block, operations, allowed []string) {
	operationsOf := map[target][]string{}
	opsOf := func(b *block, t target) []string {
		of := operations
		switch {
		case len(b.operations) > 0:
			of = b.operations
		case t.connect:
			of = []string{"CONNECT"}
		}
		return slices.DeleteFunc(slices.Clone(of), func(o string) bool { return !slices.Contains(allowed, o) })
	}
	for _, b := range blocks {
		for _, t := range b.targets {
			m.targets = union(m.targets, t)
			operationsOf[t] = union(operationsOf[t], opsOf(b, t)...)
		}
	}
	m.addRules(operationsOf)
	if len(blocks) == 1 {
		m.conditions = blocks[0].conditions
		if s := blocks[0].selector; s != nil && !strings.ContainsAny(fmt.Sprint(s.MatchLabels), "*?") {
			m.selector = s
			m.takeLate()
		}
		return
	}
	differ := slices.ContainsFunc(blocks, func(b *block) bool { return !b.condition(false, false).Equal(blocks[0].condition(false, false)) })
	var alternatives []celexpr.Expr
	for _, b := range blocks {
		alternatives = append(alternatives, b.condition(differ, !slices.Equal(b.operations, blocks[0].operations)))
	}
	if e := celexpr.Or(alternatives...); !e.IsTrue() {
		m.conditions = append(m.conditions, guard{"match", e})
	}
}

// addExclude adds the condition that a request is not excluded.
func (c *ruleConverter) addExclude() error {
	if c.rule.Exclude == nil {
		return nil
	}
	m := c.matched
	blocks, fields, oneOf := c.rule.Exclude.all("exclude")
	var all []celexpr.Expr
	for i := range blocks {
		b, err := c.readFilter(blocks[i], fields[i], c.object, m.targets...)
		if err != nil {
			if oneOf && c.partial(err, &c.notes) { // less is excluded
				continue
			}
			return err
		}
		differ := slices.ContainsFunc(m.targets, func(t target) bool {
			return !slices.ContainsFunc(b.targets, func(o target) bool { return o.kind == t.kind || o.kind == "*" })
		})
		all = append(all, b.condition(differ, true))
	}
	excluded := celexpr.And(all...)
	if oneOf {
		excluded = celexpr.Or(all...)
	}
	if len(all) > 0 && !excluded.IsFalse() {
		m.conditions = append(m.conditions, guard{"not-excluded", celexpr.Not(excluded)})
	}
	return nil
}

// addRules makes the rules that select requests.
func (m *matched) addRules(operationsOf map[target][]string) {
	var all []admissionregistrationv1.NamedRuleWithOperations
	for _, t := range m.targets {
		var operations []admissionregistrationv1.OperationType
		for _, o := range possibleOperations {
			if slices.Contains(operationsOf[t], o) {
				operations = append(operations, admissionregistrationv1.OperationType(o))
			}
		}
		if len(operations) == 0 {
			continue
		}
		m.operations = union(m.operations, operations...)
		i := slices.IndexFunc(all, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Equal(r.Operations, operations) && r.APIGroups[0] == t.group && r.APIVersions[0] == t.version
		})
		if i < 0 {
			i = len(all)
			all = append(all, newRule(operations, []string{t.group}, t.version))
		}
		all[i].Resources = append(all[i].Resources, t.resource)
		if t.isPod() && slices.Contains(operations, admissionregistrationv1.Update) {
			all[i].Resources = append(all[i].Resources, "pods/ephemeralcontainers")
		}
	}
	for _, r := range all {
		if i := slices.IndexFunc(m.rules, func(o admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Equal(r.Operations, o.Operations) && slices.Equal(r.APIGroups, o.APIGroups) && slices.Equal(r.Resources, o.Resources)
		}); i >= 0 { // another version
			m.rules[i].APIVersions = append(m.rules[i].APIVersions, r.APIVersions...)
		} else {
			m.rules = append(m.rules, r)
		}
	}
}

// newRule returns a rule that selects requests.
func newRule(operations []admissionregistrationv1.OperationType, groups []string, version string, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
	out := admissionregistrationv1.NamedRuleWithOperations{}
	out.Operations, out.APIGroups, out.APIVersions, out.Resources = operations, groups, []string{version}, resources
	return out
}

// isPod reports whether objects are pods, and not a part of one.
func (t *target) isPod() bool { return t.of == reflect.TypeFor[corev1.Pod]() && t.resource == "pods" }

// onlyPods reports whether all that a filter matches are pods.
func (m *matched) onlyPods() bool {
	return len(m.targets) > 0 && !slices.ContainsFunc(m.targets, func(t target) bool { return !t.isPod() })
}
