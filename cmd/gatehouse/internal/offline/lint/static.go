package lint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/apiserver/pkg/util/webhook"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// staticObject is an object of a directory from which an API server reads admission policies or webhooks.
type staticObject struct {
	metav1.Object
	value  runtime.Object
	source string
	// at is the path of an item of a list, nil for an object that is a document.
	at   *field.Path
	kind string
	// isBinding reports whether this is the binding of a policy, which may have the name of a policy.
	isBinding bool
}

// static is one call of Static.
type static struct {
	decoder runtime.Decoder
	objects []staticObject
	found   diagnostic.List
}

// Static returns what keeps kube-apiserver from reading a directory of admission policies or webhooks (staticManifestsDir, KEP-5793), as an
// error each, and warns about files that it does not read. It returns the number of files that it does. The error is that of reading them.
func Static(dir string) (files int, found diagnostic.List, err error) {
	documents, _, err := manifest.LoadFiles(dir)
	if err != nil {
		return 0, nil, err
	}
	scheme := runtime.NewScheme()
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		return 0, nil, err
	}
	scheme.AddUnversionedTypes(metav1.SchemeGroupVersion, &metav1.List{}, &metav1.Status{})
	s := &static{decoder: serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()}
	before, number := "", 0
	for _, d := range documents {
		name := filepath.Base(d.FilePath)
		if name != before {
			before, number, files = name, 0, files+1
		}
		var tree any
		if yaml.Unmarshal(d.Doc, &tree) == nil && tree == nil {
			s.add(StaticKind, name, "", nil, "a document without an object, such as a comment in front of ---: the API server refuses the file", "remove the --- below it")
			continue
		}
		number++
		s.decode(d.Doc, fmt.Sprintf("%s#%d", name, number), nil)
	}
	s.checkKinds()
	s.checkNames()
	for i := range s.objects {
		s.checkObject(&s.objects[i])
	}
	s.warnUnread(dir)
	return files, s.found, nil
}

// add adds an error.
func (s *static) add(code Code, source, object string, path *field.Path, message, hint string) {
	d := diagnostic.Diagnostic{Severity: diagnostic.Error, Source: source, Object: object, Message: message, Hint: hint, Code: string(code)}
	if path != nil {
		d.Field = path.String()
	}
	s.found = append(s.found, d)
}

// addTo is add about a field of an object.
func (s *static) addTo(o *staticObject, code Code, message, hint string, path string, more ...string) {
	at := o.at.Child(path, more...)
	s.add(code, o.source, o.title(), at, message, hint)
}

func (o *staticObject) title() string { return o.kind + "/" + o.GetName() }

// decode adds the objects of a document, also those in lists.
func (s *static) decode(text []byte, source string, at *field.Path) {
	value, kind, err := s.decoder.Decode(text, nil, nil)
	if runtime.IsNotRegisteredError(err) && kind != nil {
		s.add(StaticKind, source, kind.Kind, at, fmt.Sprintf("the API server does not read kind %s of %q from files", quoted(kind.Kind), kind.GroupVersion().String()), "put it into the cluster, or into --config of Gatehouse")
		return
	}
	if err != nil {
		s.add(StaticKind, source, "", at, strings.ReplaceAll(err.Error(), "\n", "; "), "the API server reads objects of admissionregistration.k8s.io/v1, without fields that it does not know")
		return
	}
	if meta.IsListType(value) {
		items, _ := meta.ExtractList(value) // it is a list
		for i, item := range items {
			path := at.Child("items").Index(i)
			if raw, ok := item.(*runtime.Unknown); ok {
				s.decode(raw.Raw, source, path)
			} else {
				s.take(item, strings.TrimSuffix(kind.Kind, "List"), source, path)
			}
		}
		return
	}
	s.take(value, kind.Kind, source, at)
}

// take adds an object.
func (s *static) take(value runtime.Object, kind, source string, at *field.Path) {
	object, ok := value.(metav1.Object)
	if !ok {
		s.add(StaticKind, source, kind, at, kind+" is not a policy, binding or webhook configuration", "")
		return
	}
	s.objects = append(s.objects, staticObject{object, value, source, at, kind, strings.HasSuffix(kind, "Binding")})
}

// checkKinds has all objects be of one plugin of the API server.
func (s *static) checkKinds() {
	for i := range s.objects {
		first, o := strings.TrimSuffix(s.objects[0].kind, "Binding"), &s.objects[i]
		if strings.TrimSuffix(o.kind, "Binding") != first {
			s.addTo(o, StaticKind, fmt.Sprintf("a %s in a directory of %s objects", o.kind, first), "each of the four plugins reads a directory of its own", "kind")
		}
	}
}

// checkNames checks the names, and those of the policies of bindings.
func (s *static) checkNames() {
	type key struct {
		isBinding bool
		name      string
	}
	seen, hint := map[key]string{}, "names in files end in "+manifest.StaticConfigSuffix
	for i := range s.objects {
		o := &s.objects[i]
		one := key{o.isBinding, o.GetName()}
		switch first, twice := seen[one], seen[one] != ""; {
		case !strings.HasSuffix(one.name, manifest.StaticConfigSuffix):
			s.addTo(o, StaticName, fmt.Sprintf("%q does not end in %q", one.name, manifest.StaticConfigSuffix), hint, "metadata", "name")
		case twice:
			s.addTo(o, StaticName, fmt.Sprintf("%q is the name of another object, in %s", one.name, first), "", "metadata", "name")
		default:
			seen[one] = o.source
		}
	}
	for i := range s.objects {
		o := &s.objects[i]
		if !o.isBinding {
			continue
		}
		switch name := policyName(o.value); {
		case !strings.HasSuffix(name, manifest.StaticConfigSuffix):
			s.addTo(o, StaticName, fmt.Sprintf("%q does not end in %q", name, manifest.StaticConfigSuffix), hint, "spec", "policyName")
		case seen[key{name: name}] == "":
			s.addTo(o, StaticReference, fmt.Sprintf("the directory has no policy %q", name), "put the policy and its bindings into one directory", "spec", "policyName")
		}
	}
}

// policyName returns the policy of a binding.
func policyName(value runtime.Object) string {
	switch b := value.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return b.Spec.PolicyName
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return b.Spec.PolicyName
	}
	return ""
}

// checkObject checks what files may not have of a kind, and what the API server checks of every object.
func (s *static) checkObject(o *staticObject) {
	noParams := func(has bool, path string) {
		if has {
			s.addTo(o, StaticParams, "a policy in a file has no params", "write the values into the policy", "spec", path)
		}
	}
	switch value := o.value.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		noParams(value.Spec.ParamKind != nil, "paramKind")
		s.compile(o, value, func(path string) string { return path })
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		noParams(value.Spec.ParamKind != nil, "paramKind")
		s.compile(o, value, func(path string) string { return path })
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		noParams(value.Spec.ParamRef != nil, "paramRef")
		if len(value.Spec.ValidationActions) == 0 {
			s.addTo(o, StaticInvalid, "a binding needs validationActions", "", "spec", "validationActions")
		}
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		noParams(value.Spec.ParamRef != nil, "paramRef")
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range value.Webhooks {
			w := &value.Webhooks[i]
			s.checkWebhook(o, i, &admissionregistrationv1.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector,
				ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			}, func(k int) string { return value.Webhooks[k].Name })
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range value.Webhooks {
			s.checkWebhook(o, i, &value.Webhooks[i], func(k int) string { return value.Webhooks[k].Name })
		}
	}
}

// compile reports why a policy is invalid, with the paths that its object has.
func (s *static) compile(o *staticObject, policy runtime.Object, path func(string) string) {
	text, err := json.Marshal(policy)
	if err != nil {
		s.addTo(o, StaticInvalid, err.Error(), "", "spec")
		return
	}
	c, found := config.InspectText("policy.yaml", text)
	_, found = config.Compile(c, found)
	for i := range found {
		if d := &found[i]; d.Severity == diagnostic.Error {
			d.Code, d.Source, d.Object, d.Field = string(StaticInvalid), o.source, o.title(), path(d.Field)
			if o.at != nil {
				d.Field = o.at.String() + "." + d.Field
			}
			s.found = append(s.found, *d)
		}
	}
}

// checkWebhook checks the i-th webhook of a configuration. Its rules, selectors and match conditions are those of a policy, too.
func (s *static) checkWebhook(o *staticObject, i int, w *admissionregistrationv1.MutatingWebhook, name func(int) string) {
	at := field.NewPath("webhooks").Index(i)
	add := func(code Code, path *field.Path, message, hint string) {
		s.addTo(o, code, message, hint, path.String())
	}
	errs := utilvalidation.IsFullyQualifiedName(at.Child("name"), w.Name)
	for k := range i {
		if name(k) == w.Name {
			errs = append(errs, field.Duplicate(at.Child("name"), w.Name))
			break
		}
	}
	switch client := w.ClientConfig; {
	case client.Service != nil:
		add(StaticService, at.Child("clientConfig", "service"), "a webhook in a file has a URL and no Service", "the hosts of kube-apiserver must reach the URL")
	case client.URL == nil || *client.URL == "":
		add(StaticService, at.Child("clientConfig"), "the URL of the webhook is missing", "")
	default:
		errs = append(errs, webhook.ValidateWebhookURL(at.Child("clientConfig", "url"), *client.URL, true)...)
	}
	none := []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun}
	if w.SideEffects == nil || !slices.Contains(none, *w.SideEffects) {
		errs = append(errs, field.NotSupported(at.Child("sideEffects"), w.SideEffects, none))
	}
	const longest = 30
	if t := w.TimeoutSeconds; t != nil && (*t < 1 || *t > longest) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t, "must be from 1 to 30 seconds"))
	}
	if !slices.Contains(w.AdmissionReviewVersions, "v1") && !slices.Contains(w.AdmissionReviewVersions, "v1beta1") {
		errs = append(errs, field.NotSupported(at.Child("admissionReviewVersions"), w.AdmissionReviewVersions, []string{"v1", "v1beta1"}))
	}
	again := []admissionregistrationv1.ReinvocationPolicyType{admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy}
	if p := w.ReinvocationPolicy; p != nil && !slices.Contains(again, *p) {
		errs = append(errs, field.NotSupported(at.Child("reinvocationPolicy"), *p, again))
	}
	for _, err := range errs {
		add(StaticInvalid, field.NewPath(err.Field), strings.TrimPrefix(err.Error(), err.Field+": "), "")
	}
	match := &admissionregistrationv1.MatchResources{MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector}
	rules := w.Rules
	if len(rules) == 0 { // the API server never calls it
		rules = []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}
	}
	for _, r := range rules {
		match.ResourceRules = append(match.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	s.compile(o, &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: policyKind},
		ObjectMeta: metav1.ObjectMeta{Name: "webhook"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match, MatchConditions: w.MatchConditions, FailurePolicy: w.FailurePolicy, Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
		},
	}, func(path string) string {
		path = strings.TrimPrefix(path, "spec.")
		path = strings.TrimPrefix(strings.Replace(path, "matchConstraints.resourceRules", "rules", 1), "matchConstraints.")
		return strings.TrimSuffix(at.String()+"."+path, ".")
	})
}

// warnUnread warns about files that may have been meant.
func (s *static) warnUnread(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // it has just been read
	}
	for _, entry := range entries {
		what := "a file with this ending"
		if entry.IsDir() {
			what = "a directory in it"
		} else if slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(entry.Name()))) {
			continue
		}
		s.found = append(s.found, diagnostic.Diagnostic{
			Severity: diagnostic.Warning, Source: entry.Name(), Code: string(StaticUnread), Message: "the API server does not read " + what,
			Hint: "it reads .yaml, .yml and .json in the directory itself",
		})
	}
}
