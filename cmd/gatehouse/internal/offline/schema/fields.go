package schema

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// rule returns what is wrong with the value of a field. A value of another type than
// the field's is not its matter.
type rule func(value any) []string

// rules are those that API servers have for fields of a type, whatever else the object
// or the cluster holds (k8s.io/kubernetes/pkg/apis/core/validation).
//
//nolint:gochecknoglobals // a table
var rules = map[reflect.Type]map[string]rule{
	reflect.TypeFor[corev1.Container]():          containerRules,
	reflect.TypeFor[corev1.EphemeralContainer](): containerRules,
	reflect.TypeFor[corev1.ContainerPort](): {
		"containerPort": port, "hostPort": optionalPort, "name": text(validation.IsValidPortName),
		"protocol": oneOf(corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
	},
	reflect.TypeFor[corev1.Volume]():      {"name": text(validation.IsDNS1123Label)},
	reflect.TypeFor[corev1.EnvVar]():      {"name": text(validation.IsRelaxedEnvVarName)},
	reflect.TypeFor[corev1.ServicePort](): {"port": port, "targetPort": portOrName, "nodePort": optionalPort, "name": text(validation.IsDNS1123Label)},
	reflect.TypeFor[corev1.HTTPGetAction](): {
		"port": portOrName, "scheme": oneOf(corev1.URISchemeHTTP, corev1.URISchemeHTTPS),
	},
	reflect.TypeFor[corev1.TCPSocketAction](): {"port": portOrName},
	reflect.TypeFor[corev1.GRPCAction]():      {"port": port},
	reflect.TypeFor[corev1.PodSpec](): {
		"restartPolicy":      oneOf(corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever),
		"dnsPolicy":          oneOf(corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone),
		"serviceAccountName": text(validation.IsDNS1123Subdomain), "priorityClassName": text(validation.IsDNS1123Subdomain),
	},
	reflect.TypeFor[networkingv1.ServiceBackendPort]():           {"number": port},
	reflect.TypeFor[appsv1.DeploymentSpec]():                     {"replicas": notNegative},
	reflect.TypeFor[appsv1.StatefulSetSpec]():                    {"replicas": notNegative},
	reflect.TypeFor[appsv1.ReplicaSetSpec]():                     {"replicas": notNegative},
	reflect.TypeFor[autoscalingv2.HorizontalPodAutoscalerSpec](): {"minReplicas": notNegative, "maxReplicas": notNegative},
}

// entryRules are the rules for the entries of fields that map strings to strings.
//
//nolint:gochecknoglobals // a table
var entryRules = map[reflect.Type]map[string]entryRule{
	reflect.TypeFor[corev1.PodSpec]():       {"nodeSelector": label},
	reflect.TypeFor[metav1.LabelSelector](): {"matchLabels": label},
	reflect.TypeFor[metav1.ObjectMeta]():    {"labels": label, "annotations": annotation},
}

// entryRule returns what is wrong with the key of an entry, and with its value.
type entryRule func(key, value string) (ofKey, ofValue []string)

//nolint:gochecknoglobals // a table
var containerRules = map[string]rule{
	"name":                     text(validation.IsDNS1123Label),
	"imagePullPolicy":          oneOf(corev1.PullAlways, corev1.PullNever, corev1.PullIfNotPresent),
	"terminationMessagePolicy": oneOf(corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError),
}

// checkFields returns what the rules for fields find in an object of a type. Names of
// objects are checked by offline/request, which knows the rule of each kind.
func (s *Schemas) checkFields(t reflect.Type, object map[string]any) diagnostic.List {
	w := fieldWalker{types: &s.types}
	w.walk(t, object, "")
	return w.found
}

// fieldWalker goes through an object in the order of its fields' names.
type fieldWalker struct {
	types *strict.Checker
	found diagnostic.List
}

func (w *fieldWalker) walk(t reflect.Type, value any, path string) {
	switch value := value.(type) {
	case map[string]any:
		ofType, ofEntries := rules[indirect(t)], entryRules[indirect(t)]
		for _, key := range slices.Sorted(maps.Keys(value)) {
			at := strict.Member(path, key)
			if r := ofType[key]; r != nil {
				w.apply(r, value[key], at)
			}
			if r := ofEntries[key]; r != nil {
				w.applyToEntries(r, value[key], at)
			}
			if below := w.types.MemberType(t, key); below != nil {
				w.walk(below, value[key], at)
			}
		}
	case []any:
		below := w.types.ElementType(t)
		for i := range value {
			w.walk(below, value[i], strict.Element(path, i))
		}
	}
}

func (w *fieldWalker) apply(r rule, value any, path string) {
	for _, problem := range r(value) {
		if text, ok := value.(string); ok {
			problem = quoted(text) + ": " + problem
		}
		w.report(path, problem)
	}
}

// applyToEntries applies a rule to each entry. The path has the key, and a message about a value has the value, unless it may be
// a secret.
func (w *fieldWalker) applyToEntries(r entryRule, value any, path string) {
	m, _ := value.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		text, ok := m[key].(string)
		if !ok {
			continue
		}
		ofKey, ofValue := r(key, text)
		for _, problem := range ofKey {
			w.report(strict.Member(path, key), "the key is invalid: "+problem)
		}
		for _, problem := range ofValue {
			w.report(strict.Member(path, key), quoted(text)+": "+problem)
		}
	}
}

func (w *fieldWalker) report(path, problem string) {
	w.found = append(w.found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: path, Message: request.WithoutPattern(problem)})
}

func indirect(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func quoted(value string) string {
	const most = 60
	return strconv.Quote(truncate.Runes(value, most))
}

// text makes a rule of a rule for strings. An empty string is as none.
func text(validate func(string) []string) rule {
	return func(value any) []string {
		s, ok := value.(string)
		if !ok || s == "" {
			return nil
		}
		return validate(s)
	}
}

func oneOf[T ~string](values ...T) rule {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	return text(func(s string) []string {
		if slices.Contains(names, s) {
			return nil
		}
		return []string{"must be " + strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]}
	})
}

func port(value any) []string {
	n, ok := integer(value)
	if !ok {
		return nil
	}
	return prefixed(value, validation.IsValidPortNum(n))
}

// optionalPort is a port that 0 leaves out.
func optionalPort(value any) []string {
	if n, ok := integer(value); ok && n == 0 {
		return nil
	}
	return port(value)
}

func portOrName(value any) []string {
	if name, ok := value.(string); ok {
		return validation.IsValidPortName(name)
	}
	return port(value)
}

func notNegative(value any) []string {
	if n, ok := integer(value); ok && n < 0 {
		return prefixed(value, []string{apivalidation.IsNegativeErrorMsg})
	}
	return nil
}

// integer returns a value that is a whole number.
func integer(value any) (int, bool) {
	switch n := value.(type) {
	case int64:
		return int(n), true
	case float64:
		return int(n), n == math.Trunc(n)
	default:
		return 0, false
	}
}

func prefixed(value any, problems []string) []string {
	for i := range problems {
		problems[i] = fmt.Sprintf("%v: %s", value, problems[i])
	}
	return problems
}

func label(key, value string) (ofKey, ofValue []string) {
	return content.IsLabelKey(key), content.IsLabelValue(value)
}

func annotation(key, _ string) (ofKey, ofValue []string) {
	// The letters of an annotation's key may be of either case.
	return content.IsLabelKey(strings.ToLower(key)), nil
}
