package schema

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
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
		"nodeSelector": labels,
	},
	reflect.TypeFor[networkingv1.ServiceBackendPort]():           {"number": port},
	reflect.TypeFor[appsv1.DeploymentSpec]():                     {"replicas": notNegative},
	reflect.TypeFor[appsv1.StatefulSetSpec]():                    {"replicas": notNegative},
	reflect.TypeFor[appsv1.ReplicaSetSpec]():                     {"replicas": notNegative},
	reflect.TypeFor[autoscalingv2.HorizontalPodAutoscalerSpec](): {"minReplicas": notNegative, "maxReplicas": notNegative},
	reflect.TypeFor[metav1.LabelSelector]():                      {"matchLabels": labels},
	reflect.TypeFor[metav1.ObjectMeta](): {
		"labels": labels, "annotations": annotations,
	},
}

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
		ofType := rules[indirect(t)]
		for _, key := range slices.Sorted(maps.Keys(value)) {
			at := strict.Member(path, key)
			if r := ofType[key]; r != nil {
				w.apply(r, value[key], at)
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
		message := problem
		if text, ok := value.(string); ok {
			message = quoted(text) + ": " + problem
		}
		w.found = append(w.found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: path, Message: message})
	}
}

func indirect(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func quoted(value string) string {
	const most = 60
	return `"` + truncate.Runes(strict.Printable(value), most) + `"`
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

func labels(value any) []string {
	return entries(value, func(key, value string) []string {
		return append(content.IsLabelKey(key), content.IsLabelValue(value)...)
	})
}

func annotations(value any) []string {
	// The letters of an annotation's key may be of either case.
	return entries(value, func(key, _ string) []string { return content.IsLabelKey(strings.ToLower(key)) })
}

// entries returns what is wrong with the entries of a map of strings.
func entries(value any, validate func(key, value string) []string) []string {
	m, _ := value.(map[string]any)
	var problems []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if text, ok := m[key].(string); ok {
			for _, problem := range validate(key, text) {
				problems = append(problems, quoted(key+": "+text)+": "+problem)
			}
		}
	}
	return problems
}
