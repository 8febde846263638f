package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/apiserver"
	sigsjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/rbac"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// objectKey identifies an object. The version is no part of it.
type objectKey struct {
	schema.GroupKind
	namespace, name string
}

// decoder decodes the documents of a directory.
type decoder struct {
	parser  parser
	tree    *tree
	checker strict.Checker

	documents int
	tests     int // of the documents
	found     diagnostic.List
	warnings  diagnostic.List
	// foreign are warnings about policies of other engines, by their kinds.
	foreign map[schema.GroupVersionKind]diagnostic.List
	// sources are the places where each object was given first.
	sources map[objectKey]string

	// config is what was decoded, but for rbac and context, and last the last object of it.
	config  *Config
	last    any
	rbac    rbac.Documents
	context []*unstructured.Unstructured
}

func newDecoder(t *tree) *decoder {
	return &decoder{
		parser:  newParser(t.limits),
		tree:    t,
		sources: map[objectKey]string{},
		foreign: map[schema.GroupVersionKind]diagnostic.List{},
		config:  &Config{Digest: t.digest, State: t.state, Files: len(t.files), Unread: t.unread},
	}
}

// files reads the documents of all files, and notes which files hold any, and which
// may hold more than was read.
func (d *decoder) files() {
	c := d.config
	for _, f := range d.tree.files {
		documents, found := d.documents-d.tests, len(d.found)
		d.file(f)
		switch {
		case len(d.found) > found:
			c.Unread.Paths = append(c.Unread.Paths, f.path)
		case d.documents-d.tests > documents:
			c.Filled = append(c.Filled, f.path)
		default:
			c.Empty = append(c.Empty, f.path)
		}
	}
	if d.parser.budget < 0 || d.documents > d.tree.limits.documents {
		c.Unread.All = true // files behind the one that met the limit were not decoded
	}
	c.Documents = d.documents - d.tests
}

// file reads the documents of a file.
func (d *decoder) file(f file) {
	if d.parser.budget < 0 {
		return // reported already
	}
	docs := d.parser.documents(f)
	for i, doc := range docs {
		source := f.path
		if len(docs) > 1 {
			source = fmt.Sprintf("%s#%d", f.path, i+1)
		}
		o := object{decoder: d, source: source, file: f.path}
		for _, p := range doc.problems {
			o.report(p)
		}
		if doc.value == nil {
			d.documents++
			continue
		}
		o.read(doc.value)
	}
}

// object is one object on its way into the configuration.
type object struct {
	*decoder
	source string // for people: file, document and item
	file   string
	label  string // for people: kind and name
	fields map[string]any
}

func (o *object) report(p problem) {
	o.found = append(o.found, diagnostic.Diagnostic{
		Severity: diagnostic.Error, Source: o.source, Object: o.label,
		Field: p.field, Message: p.message, Hint: p.hint, Line: p.line,
	})
}

func (o *object) warn(p problem) { o.warnings = append(o.warnings, o.warning(p)) }

func (o *object) warning(p problem) diagnostic.Diagnostic {
	return diagnostic.Diagnostic{Severity: diagnostic.Warning, Source: o.source, Object: o.label, Field: p.field, Message: p.message, Hint: p.hint}
}

// read reads one object, or the objects of a list.
func (o *object) read(value any) {
	o.documents++
	switch most := o.tree.limits.documents; {
	case o.documents == most+1:
		o.report(problem{message: fmt.Sprintf("there are more than %d documents", most)})
		return
	case o.documents > most:
		return
	}
	fields, ok := value.(map[string]any)
	if !ok {
		o.report(problem{message: "is not a Kubernetes object", hint: "a document is a mapping with apiVersion, kind and metadata"})
		return
	}
	o.fields = fields
	kind, kindOK := o.requiredString("kind")
	apiVersion, versionOK := o.requiredString("apiVersion")
	if !kindOK || !versionOK {
		return
	}
	o.label = strict.Printable(kind)
	groupVersion, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		o.report(problem{field: "apiVersion", message: fmt.Sprintf("%q is not a valid apiVersion", strict.Cut(apiVersion, 60)), hint: "write it as v1 or group.example/v1"})
		return
	}
	gvk := groupVersion.WithKind(kind)
	if items, ok := fields["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		o.list(gvk, items)
		return
	}
	if gvk == (schema.GroupVersionKind{Version: "v1", Kind: "List"}) {
		// Taken for a context object, a misspelt list would hide all it holds.
		o.report(problem{field: "items", message: "is missing or not a list", hint: "a List holds its objects in items"})
		return
	}
	o.readObject(gvk)
}

// requiredString returns a member of the object that must be a string and not empty.
func (o *object) requiredString(name string) (string, bool) {
	text, ok := o.fields[name].(string)
	if !ok || text == "" {
		o.report(problem{field: name, message: "is missing or not a string", hint: "a document has apiVersion, kind and metadata.name"})
		return "", false
	}
	return text, true
}

// list reads the items of a list. In a List each item has its kind; in a list of one kind
// it need not.
func (o *object) list(gvk schema.GroupVersionKind, items []any) {
	separator := "#"
	if strings.Contains(o.source, "#") {
		separator = "/"
	}
	o.documents-- // the list itself is none
	for i, value := range items {
		item := object{decoder: o.decoder, file: o.file, source: fmt.Sprintf("%s%sitems[%d]", o.source, separator, i)}
		fields, ok := value.(map[string]any)
		if kind := strings.TrimSuffix(gvk.Kind, "List"); ok && kind != "" {
			for name, text := range map[string]string{"apiVersion": gvk.GroupVersion().String(), "kind": kind} {
				if _, given := fields[name]; !given {
					fields[name] = text
				}
			}
		}
		item.read(value)
	}
}

// readObject reads an object that is no list.
func (o *object) readObject(gvk schema.GroupVersionKind) {
	// The kinds that need no metadata.
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: testKind}:
		if o.isKnown(gvk) {
			o.tests++
		}
		return
	case singleton(policyConfiguration):
		if o.isKnown(gvk) && o.isFirst(gvk) {
			o.configure()
		}
		return
	case singleton(recordingConfig):
		if o.isKnown(gvk) && o.isFirst(gvk) {
			o.record()
		}
		return
	case singleton(authenticationConfiguration):
		if o.isKnown(gvk) && o.isFirst(gvk) {
			o.authenticate()
		}
		return
	case schema.GroupKind{Group: apiserver.GroupName, Kind: authenticationConfiguration}:
		if o.isFirst(gvk) {
			o.authenticateUpstream()
		}
		return
	}
	o.label = o.displayName(gvk)
	if !o.isKnown(gvk) {
		return
	}
	metadata, ok := o.metadata()
	if !ok {
		return
	}
	if metadata.name == "" {
		o.report(problem{field: "metadata.name", message: "is missing", hint: "set metadata.name"})
		if isTyped(gvk) {
			o.decodeInto(typedKinds[gvk.Kind].new()) // reports what else is wrong
		}
		return
	}
	switch {
	case isTyped(gvk) && isNamespaced(gvk.Kind):
		if metadata.namespace == "" {
			o.report(problem{
				field: "metadata.namespace", message: fmt.Sprintf("is missing: a %s needs a namespace", gvk.Kind),
				hint: "set the namespace; it decides which objects it can match",
			})
			o.decodeInto(typedKinds[gvk.Kind].new()) // reports what else is wrong
			return
		}
	case isTyped(gvk) && metadata.namespace != "":
		hint := "remove it"
		switch gvk.Kind {
		case sidecarProfile:
			hint = "select namespaces with spec.match.namespaceSelector"
		case admissionPolicy, upstreamPolicy, mutatingPolicy:
			hint = "select namespaces with spec.matchConstraints.namespaceSelector"
		case admissionBinding, upstreamBinding, mutatingBinding:
			hint = "select namespaces with spec.matchResources.namespaceSelector"
		}
		o.report(problem{
			field: "metadata.namespace", hint: hint,
			message: fmt.Sprintf("%q is set, but every %s is cluster-scoped", strict.Cut(metadata.namespace, 60), gvk.Kind),
		})
	}
	key := objectKey{gvk.GroupKind(), metadata.namespace, metadata.name}
	if first, twice := o.sources[key]; twice {
		o.report(problem{
			message: fmt.Sprintf("the object is given twice, first in %q", first),
			hint:    "remove one of the two or give it another name",
		})
		return
	}
	o.sources[key] = o.source
	o.keep(gvk)
}

// displayName returns the name of the object in diagnostics: its kind, its namespace if it
// has one, and its name.
func (o *object) displayName(gvk schema.GroupVersionKind) string {
	parts := []string{strict.Printable(gvk.Kind)}
	metadata, _ := o.fields["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	if clusterScoped := isTyped(gvk) && !isNamespaced(gvk.Kind); namespace != "" && name != "" && !clusterScoped {
		parts = append(parts, strict.Printable(namespace))
	}
	if name != "" {
		parts = append(parts, strict.Printable(name))
	}
	return strings.Join(parts, "/")
}

// singleton is a kind of ours that has no name, and of which there is at most one
// document.
func singleton(kind string) schema.GroupKind {
	return schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: kind}
}

// isFirst reports whether this is the first document of its kind. A second one is an error.
func (o *object) isFirst(gvk schema.GroupVersionKind) bool {
	key := objectKey{GroupKind: gvk.GroupKind()}
	first, twice := o.sources[key]
	if twice {
		kind := gvk.Kind
		if gvk.Group != v1alpha1.GroupVersion.Group {
			kind += " of " + gvk.Group
		}
		o.report(problem{
			message: fmt.Sprintf("the %s is given twice, first in %q", kind, first),
			hint:    "a directory has at most one: merge the two",
		})
		return false
	}
	o.sources[key] = o.source
	return true
}

// configure reads what holds for all policies.
func (o *object) configure() {
	var v v1alpha1.PolicyConfiguration
	if o.decodeInto(&v) {
		o.config.Policy.Configuration = &policy.Configuration{Source: o.source, PolicyConfiguration: v}
	}
}

// metadata is the part of an object's metadata that this package needs.
type metadata struct{ namespace, name string }

// metadata reads the metadata, and reports errors that no typed decoding reports.
func (o *object) metadata() (metadata, bool) {
	fields, ok := o.fields["metadata"].(map[string]any)
	if !ok {
		o.report(problem{field: "metadata", message: "is missing or not a mapping", hint: "a document has apiVersion, kind and metadata.name"})
		return metadata{}, false
	}
	var m metadata
	for _, field := range []struct {
		name string
		to   *string
	}{{"name", &m.name}, {"namespace", &m.namespace}} {
		value, given := fields[field.name]
		if !given || value == nil {
			continue
		}
		text, isText := value.(string)
		if !isText {
			o.problems(o.checker.Compare(reflect.TypeFor[string](), value, "metadata."+field.name, strict.Options{}))
			return metadata{}, false
		}
		*field.to = text
	}
	return m, true
}

// keep puts the object where it belongs.
func (o *object) keep(gvk schema.GroupVersionKind) {
	if !isTyped(gvk) {
		o.keepContext(gvk)
		return
	}
	value := typedKinds[gvk.Kind].new()
	if !o.decodeInto(value) {
		return
	}
	upgrade(gvk, value)
	if document, is := value.(*v1alpha1.PolicyBaseline); is {
		compact, problems := policy.NewBaseline(document)
		for i, p := range problems {
			if i == maxProblems {
				o.report(problem{message: fmt.Sprintf("and %d more problems", len(problems)-i)})
				break
			}
			o.report(problem{field: p.Field, message: p.Detail})
		}
		value = compact
	}
	namespace, is := value.(*corev1.Namespace)
	if !is {
		o.config.add(o.source, value)
		o.last = value
		return
	}
	// The API server sets this label on every namespace.
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[corev1.LabelMetadataName] = namespace.Name
	u := &unstructured.Unstructured{Object: o.fields}
	u.SetLabels(namespace.Labels)
	o.context = append(o.context, u)
	o.config.LookedUp = append(o.config.LookedUp, o.source+": Namespace/"+namespace.Name)
}

// keepContext keeps an object that policies and templates may look up.
func (o *object) keepContext(gvk schema.GroupVersionKind) {
	u := &unstructured.Unstructured{Object: o.fields}
	o.context = append(o.context, u)
	if gvk.GroupKind() != definitionKind().GroupKind() { // definitions are the schemas of what policies make
		o.config.LookedUp = append(o.config.LookedUp, o.source+": "+gvk.Kind+"/"+u.GetName())
	}
	o.warnOfKind(gvk)
	if !o.keepRBAC(gvk) {
		// Selectors read the metadata, so it is held to its type.
		o.problems(o.checker.Compare(reflect.TypeFor[metav1.ObjectMeta](), o.fields["metadata"], "metadata", strict.Options{}))
	}
	if isNamespacedContext(gvk) && u.GetNamespace() == "" {
		o.warn(problem{
			field: "metadata.namespace", message: fmt.Sprintf("is missing, so no lookup of a %s in a namespace finds it", gvk.Kind),
			hint: "set the namespace of the object",
		})
	}
}

// isNamespacedContext reports whether a kind of context is known to be in namespaces, so
// that an object without one is never found. Only a cluster knows this of other kinds.
func isNamespacedContext(gvk schema.GroupVersionKind) bool {
	switch gvk.Kind {
	case "ConfigMap", "Secret":
		return gvk.Group == corev1.GroupName
	case roleKind, roleBinding:
		return gvk.Group == rbacv1.GroupName
	default:
		return false
	}
}

// problems reports at most maxProblems problems of the object.
func (o *object) problems(list diagnostic.List) {
	for i, f := range list {
		if i == maxProblems {
			o.report(problem{message: fmt.Sprintf("and %d more problems", len(list)-i)})
			return
		}
		f.Source, f.Object = o.source, o.label
		o.found = append(o.found, f)
	}
}

// decodeInto decodes the object strictly into a pointer. What does not fit is reported, and false means that the object must not be used.
func (o *object) decodeInto(into any) bool {
	// A misplaced token must not be repeated.
	secret := o.fields["kind"] == accessToken
	problems := o.checker.Compare(reflect.TypeOf(into).Elem(), o.fields, "", strict.Options{Secret: secret, NotNull: isBound})
	o.problems(problems)
	if len(problems) > 0 {
		return false
	}
	strictErrs, err := unmarshal(o.fields, into)
	if err != nil {
		o.report(problem{message: err.Error()})
		return false
	}
	for _, e := range strictErrs {
		if field, ok := errors.AsType[sigsjson.FieldError](e); ok {
			o.report(problem{field: strict.Printable(field.FieldPath()), message: "unknown or duplicate field"})
		}
	}
	return len(strictErrs) == 0
}

// isBound reports whether a member bounds what a token may do: without it, the token may do more.
func isBound(of reflect.Type, member string) bool {
	switch of {
	case reflect.TypeFor[v1alpha1.AccessTokenSpec]():
		return member == "scope"
	case reflect.TypeFor[v1alpha1.TokenScope](), reflect.TypeFor[v1alpha1.ScopeRule]():
		return member == "namespaces" || member == "resourceNames"
	default:
		return false
	}
}

// unmarshal decodes a value. The strict errors are about what the type does not have, the
// other one about what it does not take.
func unmarshal(value, into any) ([]error, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return sigsjson.UnmarshalStrict(raw, into)
}
