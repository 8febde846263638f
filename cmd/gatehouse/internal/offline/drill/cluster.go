package drill

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// The bounds of a Cluster. What is beyond them is named, and makes the report incomplete.
const (
	maxHooks     = 2_000
	maxWorkloads = 20_000
	maxOther     = 50_000 // of each other kind
)

// Place is where an object was read: its file and line, from 1, or nothing for a cluster.
type Place struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Cluster is what is known of a cluster. It is not safe for concurrent use.
type Cluster struct {
	matching.Nothing

	// Whole reports whether what was not added does not exist. A few files are not whole.
	Whole bool
	// Kubernetes is the minor version, as "1.37", "" for an unknown one.
	Kubernetes string
	// Unread names what could not be read, with the reason.
	Unread []string

	hooks       []*hook
	namespaces  map[string]*corev1.Namespace
	services    map[string]*corev1.Service
	slices      map[string][]*discoveryv1.EndpointSlice // by Service
	budgets     []*policyv1.PodDisruptionBudget
	definitions map[string]*definition
	apiServices []*apiService
	workloads   map[string]*podGroup
	// full are the kinds of which there were too many.
	full map[string]bool
}

// podGroup is a workload with its pods, or pods with one owner.
type podGroup struct {
	namespace, kind, name string
	// pod is a pod as it would be created, and labels are its labels.
	pod    []byte
	labels labels.Set
	spec   corev1.PodSpec
	// replicas is how many pods are wanted, -1 if that is not known.
	replicas int
	// pods and ready count those that exist, and nodes where they are.
	pods, ready int
	nodes       map[string]int
	// first is the name of a pod.
	first string
	// templated reports whether pod comes from the workload, and not from one of its pods.
	templated bool
}

func (g *podGroup) title() string {
	if g.kind == "" {
		return "any workload in " + g.namespace
	}
	return g.kind + " " + g.namespace + "/" + g.name
}

// definition is a CustomResourceDefinition.
type definition struct {
	object *unstructured.Unstructured
	place  Place
}

// apiService is an APIService that another server answers.
type apiService struct {
	name, namespace, service string
	port                     int32
	place                    Place
}

// NewCluster returns a cluster of which nothing is known.
func NewCluster() *Cluster {
	return &Cluster{
		namespaces: map[string]*corev1.Namespace{}, services: map[string]*corev1.Service{}, slices: map[string][]*discoveryv1.EndpointSlice{},
		definitions: map[string]*definition{}, workloads: map[string]*podGroup{}, full: map[string]bool{},
	}
}

// kind is a kind that a drill reads.
type kind struct {
	schema.GroupVersionKind

	resource string
}

// kinds returns the kinds that a drill reads. Pods come after their workloads.
func kinds() []kind {
	of := func(version schema.GroupVersion, name, resource string) kind {
		return kind{version.WithKind(name), resource}
	}
	apps := appsv1.SchemeGroupVersion
	return []kind{
		of(admissionregistrationv1.SchemeGroupVersion, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
		of(admissionregistrationv1.SchemeGroupVersion, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
		of(schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, "CustomResourceDefinition", "customresourcedefinitions"),
		of(schema.GroupVersion{Group: "apiregistration.k8s.io", Version: "v1"}, "APIService", "apiservices"),
		of(corev1.SchemeGroupVersion, "Namespace", "namespaces"),
		of(corev1.SchemeGroupVersion, "Service", "services"),
		of(discoveryv1.SchemeGroupVersion, "EndpointSlice", "endpointslices"),
		of(policyv1.SchemeGroupVersion, "PodDisruptionBudget", "poddisruptionbudgets"),
		of(apps, "Deployment", "deployments"), of(apps, "StatefulSet", "statefulsets"), of(apps, "DaemonSet", "daemonsets"),
		of(corev1.SchemeGroupVersion, "Pod", "pods"),
	}
}

// Kinds returns the resources that a drill reads, in the order in which it needs them.
func Kinds() (list []schema.GroupVersionResource) {
	for _, k := range kinds() {
		list = append(list, k.GroupVersion().WithResource(k.resource))
	}
	return list
}

// KindOf returns the kind of a resource of Kinds.
func KindOf(resource string) string {
	for _, k := range kinds() {
		if k.resource == resource {
			return k.Kind
		}
	}
	return ""
}

// Add adds an object, as JSON. An object of a kind that a drill does not read is left out.
func (c *Cluster) Add(kind schema.GroupVersionKind, object []byte, place Place) error {
	switch kind.GroupKind().String() + "/" + kind.Version {
	case "MutatingWebhookConfiguration.admissionregistration.k8s.io/v1":
		return add(c, kind, object, func(o *admissionregistrationv1.MutatingWebhookConfiguration) {
			for i := range o.Webhooks {
				c.addHook(kind, newHook(kind.Kind, o, webhook.NewMutatingWebhookAccessor("", o.Name, &o.Webhooks[i]), place))
			}
		})
	case "ValidatingWebhookConfiguration.admissionregistration.k8s.io/v1":
		return add(c, kind, object, func(o *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for i := range o.Webhooks {
				c.addHook(kind, newHook(kind.Kind, o, webhook.NewValidatingWebhookAccessor("", o.Name, &o.Webhooks[i]), place))
			}
		})
	case "Namespace/v1":
		return add(c, kind, object, func(o *corev1.Namespace) { put(c, kind, c.namespaces, o.Name, o) })
	case "Service/v1":
		return add(c, kind, object, func(o *corev1.Service) {
			o.Namespace = namespaceOf(o)
			put(c, kind, c.services, o.Namespace+"/"+o.Name, o)
		})
	case "EndpointSlice.discovery.k8s.io/v1":
		return add(c, kind, object, func(o *discoveryv1.EndpointSlice) {
			key := namespaceOf(o) + "/" + o.Labels[discoveryv1.LabelServiceName]
			put(c, kind, c.slices, key, append(c.slices[key], o))
		})
	case "PodDisruptionBudget.policy/v1":
		return add(c, kind, object, func(o *policyv1.PodDisruptionBudget) {
			if c.fits(kind, len(c.budgets)) {
				c.budgets = append(c.budgets, o)
			}
		})
	case "CustomResourceDefinition.apiextensions.k8s.io/v1":
		o := new(unstructured.Unstructured)
		if err := o.UnmarshalJSON(object); err != nil {
			return err
		}
		put(c, kind, c.definitions, o.GetName(), &definition{o, place})
		return nil
	case "APIService.apiregistration.k8s.io/v1":
		return c.addAPIService(kind, object, place)
	case "Deployment.apps/v1":
		return add(c, kind, object, func(o *appsv1.Deployment) {
			c.addWorkload(kind, o, rawjson.Value(object), o.Spec.Template.Labels, &o.Spec.Template.Spec, int(*cmp.Or(o.Spec.Replicas, new(int32(1)))))
		})
	case "StatefulSet.apps/v1":
		return add(c, kind, object, func(o *appsv1.StatefulSet) {
			c.addWorkload(kind, o, rawjson.Value(object), o.Spec.Template.Labels, &o.Spec.Template.Spec, int(*cmp.Or(o.Spec.Replicas, new(int32(1)))))
		})
	case "DaemonSet.apps/v1":
		return add(c, kind, object, func(o *appsv1.DaemonSet) {
			c.addWorkload(kind, o, rawjson.Value(object), o.Spec.Template.Labels, &o.Spec.Template.Spec, -1)
		})
	case "Pod/v1":
		return add(c, kind, object, func(o *corev1.Pod) { c.addPod(kind, o) })
	default:
		return nil
	}
}

// add decodes an object and fills in its defaults.
func add[T any, O interface {
	*T
	runtime.Object
	metav1.Object
}](c *Cluster, kind schema.GroupVersionKind, text []byte, with func(O)) error {
	o := O(new(T))
	if err := json.Unmarshal(text, o); err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	if o.GetName() == "" && o.GetGenerateName() == "" {
		return fmt.Errorf("%s: it has no name", kind.Kind)
	}
	defaults.Default(o)
	with(o)
	return nil
}

func namespaceOf(o metav1.Object) string { return cmp.Or(o.GetNamespace(), metav1.NamespaceDefault) }

// fits reports whether there is space for one more object of a kind, and notes it if not.
func (c *Cluster) fits(kind schema.GroupVersionKind, have int) bool {
	most := maxOther
	switch kind.Kind {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		most = maxHooks
	case "Pod", "Deployment", "StatefulSet", "DaemonSet":
		most = maxWorkloads
	}
	if have >= most && !c.full[kind.Kind] {
		c.full[kind.Kind] = true
		c.Unread = append(c.Unread, fmt.Sprintf("there are more than %d objects of the kind %s, or workloads: the rest is left out", most, kind.Kind))
	}
	return have < most
}

func put[V any](c *Cluster, kind schema.GroupVersionKind, in map[string]V, key string, value V) {
	if _, has := in[key]; has || c.fits(kind, len(in)) {
		in[key] = value
	}
}

func (c *Cluster) addHook(kind schema.GroupVersionKind, h *hook) {
	if c.fits(kind, len(c.hooks)) {
		c.hooks = append(c.hooks, h)
	}
}

func (c *Cluster) addAPIService(kind schema.GroupVersionKind, text []byte, place Place) error {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Service *struct {
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
				Port      *int32 `json:"port"`
			} `json:"service"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return fmt.Errorf("APIService: %w", err)
	}
	if s := o.Spec.Service; s != nil && c.fits(kind, len(c.apiServices)) {
		c.apiServices = append(c.apiServices, &apiService{o.Metadata.Name, s.Namespace, s.Name, *cmp.Or(s.Port, new(int32(443))), place})
	}
	return nil
}

// group returns the group of that workload.
func (c *Cluster) group(as schema.GroupVersionKind, namespace, kind, name string) *podGroup {
	key := kind + "/" + namespace + "/" + name
	if c.workloads[key] == nil {
		if !c.fits(as, len(c.workloads)) {
			return &podGroup{nodes: map[string]int{}}
		}
		c.workloads[key] = &podGroup{namespace: namespace, kind: kind, name: name, replicas: -1, nodes: map[string]int{}}
	}
	return c.workloads[key]
}

// addWorkload adds a workload with its pod template.
func (c *Cluster) addWorkload(kind schema.GroupVersionKind, o metav1.Object, text rawjson.Value, set map[string]string, spec *corev1.PodSpec, replicas int) {
	g := c.group(kind, namespaceOf(o), kind.Kind, o.GetName())
	g.pod = workload.AppendPod(nil, text.Get("spec", "template"), g.namespace, g.name)
	g.labels, g.spec, g.replicas, g.templated = set, *spec, replicas, true
}

// addPod adds a pod to the group of its workload.
func (c *Cluster) addPod(kind schema.GroupVersionKind, o *corev1.Pod) {
	if o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
		return
	}
	owner, name := "Pod", o.Name
	if of := metav1.GetControllerOf(o); of != nil {
		owner, name = of.Kind, of.Name
		if hash := o.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; owner == "ReplicaSet" && hash != "" && strings.HasSuffix(name, "-"+hash) {
			owner, name = "Deployment", strings.TrimSuffix(name, "-"+hash)
		}
		if owner == "Node" { // the kubelet of the node runs it from a file
			owner, name = "static Pod", strings.TrimSuffix(o.Name, "-"+of.Name)
		}
	}
	g := c.group(kind, namespaceOf(o), owner, name)
	g.pods++
	g.first = cmp.Or(g.first, o.Name)
	for _, condition := range o.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			g.ready++
		}
	}
	if node := o.Spec.NodeName; node != "" && len(g.nodes) < maxOther {
		g.nodes[node]++
	}
	if g.pod != nil {
		return
	}
	// As it was when it was created, as far as that is known.
	created := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: o.Spec}
	created.Namespace, created.Name, created.Labels, created.Annotations, created.OwnerReferences = namespaceOf(o), o.Name, o.Labels, o.Annotations, o.OwnerReferences
	if owner != "static Pod" {
		created.Spec.NodeName = ""
	}
	text, err := json.Marshal(&created)
	if err != nil {
		return
	}
	g.pod, g.labels, g.spec = text, o.Labels, o.Spec
}

// Namespace implements matching.Objects.
func (c *Cluster) Namespace(name string) (*corev1.Namespace, bool) {
	if found := c.namespaces[name]; found != nil {
		return found, true
	}
	if c.Whole || name == "" {
		return nil, false
	}
	// Files seldom have the namespaces that exist in any cluster.
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}, true
}

// Get implements matching.Objects: it knows CustomResourceDefinitions.
func (c *Cluster) Get(kind schema.GroupVersionKind, _, name string) (*unstructured.Unstructured, error) {
	if found := c.definitions[name]; found != nil && kind.Kind == "CustomResourceDefinition" {
		return found.object, nil
	}
	return nil, nil //nolint:nilnil // there is none, as the interface says
}

// groups returns the groups for which f is true, in a fixed order.
func (c *Cluster) groups(f func(*podGroup) bool) (list []*podGroup) {
	for _, key := range slices.Sorted(maps.Keys(c.workloads)) {
		if g := c.workloads[key]; len(g.pod) > 0 && f(g) {
			list = append(list, g)
		}
	}
	return list
}

// behind returns the groups of the pods of a Service, NAMESPACE/NAME. A Service without a selector has those to which its EndpointSlices
// refer.
func (c *Cluster) behind(backend string) []*podGroup {
	service := c.services[backend]
	if service == nil {
		return nil
	}
	if len(service.Spec.Selector) > 0 {
		selector := labels.SelectorFromSet(service.Spec.Selector)
		return c.groups(func(g *podGroup) bool { return g.namespace == service.Namespace && selector.Matches(g.labels) })
	}
	names := map[string]bool{}
	for _, slice := range c.slices[backend] {
		for i := range slice.Endpoints {
			if of := slice.Endpoints[i].TargetRef; of != nil && of.Kind == "Pod" {
				names[of.Name] = true
			}
		}
	}
	return c.groups(func(g *podGroup) bool { return g.namespace == service.Namespace && names[g.first] })
}

// endpoint returns a ready pod behind a Service, NAMESPACE/NAME, and the port at which it answers for a port of the Service.
func (c *Cluster) endpoint(backend string, port int32) (namespace, pod string, target int, found bool) {
	service := c.services[backend]
	if service == nil {
		return "", "", 0, false
	}
	for i := range service.Spec.Ports {
		for _, slice := range c.slices[backend] {
			for k := range slice.Ports {
				of := &slice.Ports[k]
				if service.Spec.Ports[i].Port != port || of.Port == nil || of.Name != nil && *of.Name != service.Spec.Ports[i].Name {
					continue
				}
				for e := range slice.Endpoints {
					if p := &slice.Endpoints[e]; p.TargetRef != nil && p.TargetRef.Kind == "Pod" && (p.Conditions.Ready == nil || *p.Conditions.Ready) {
						return service.Namespace, p.TargetRef.Name, int(*of.Port), true
					}
				}
			}
		}
	}
	return "", "", 0, false
}
