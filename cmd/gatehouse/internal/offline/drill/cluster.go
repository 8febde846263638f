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
	utiljson "k8s.io/apimachinery/pkg/util/json"
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

	// Whole reports whether what was not added does not exist. A few files are not whole. It is set before the first object is added, and then
	// objects are added in the order of Kinds: of what comes later, only what concerns those before is kept.
	Whole bool
	// Kubernetes is the minor version, as "1.37", "" for an unknown one.
	Kubernetes string
	// Unread names what could not be read, with the reason.
	Unread []string

	kinds       []kind
	hooks       []*hook
	namespaces  map[string]*corev1.Namespace
	services    map[string]*corev1.Service
	slices      map[string][]*discoveryv1.EndpointSlice // by Service
	budgets     map[string]*policyv1.PodDisruptionBudget
	definitions map[string]*definition
	apiServices []*apiService
	workloads   map[string]*podGroup
	// backends are the Services that must answer, and inNamespaces their namespaces.
	backends, inNamespaces map[string]bool
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
	// namespace and service name what converts between its versions, and service is "" if nothing does.
	namespace, service string
	port               int32
	caBundle           string
}

// read reads what converts between the versions.
func (d *definition) read() {
	if strategy, _, _ := unstructured.NestedString(d.object.Object, "spec", "conversion", "strategy"); strategy != "Webhook" {
		return
	}
	client, _, _ := unstructured.NestedMap(d.object.Object, "spec", "conversion", "webhook", "clientConfig")
	service, _ := client["service"].(map[string]any)
	d.namespace, _ = service["namespace"].(string)
	d.service, _ = service["name"].(string)
	d.caBundle, _ = client["caBundle"].(string)
	d.port = 443
	if given, ok := service["port"].(int64); ok && given > 0 && given < 1<<16 {
		d.port = int32(given)
	}
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
		kinds: kinds(), budgets: map[string]*policyv1.PodDisruptionBudget{}, namespaces: map[string]*corev1.Namespace{}, services: map[string]*corev1.Service{}, slices: map[string][]*discoveryv1.EndpointSlice{},
		definitions: map[string]*definition{}, workloads: map[string]*podGroup{}, full: map[string]bool{},
		backends: map[string]bool{}, inNamespaces: map[string]bool{},
	}
}

// kind is a kind that a drill reads.
type kind struct {
	schema.GroupVersionKind

	resource string
	add      func(c *Cluster, k *kind, text []byte, place Place) error
}

// kinds returns the kinds that a drill reads. Pods come after their workloads.
func kinds() []kind {
	registration, apps, v1 := admissionregistrationv1.SchemeGroupVersion, appsv1.SchemeGroupVersion, corev1.SchemeGroupVersion
	return []kind{
		{registration.WithKind("MutatingWebhookConfiguration"), "mutatingwebhookconfigurations", decoding(func(c *Cluster, k *kind, o *admissionregistrationv1.MutatingWebhookConfiguration, place Place) {
			for i := range o.Webhooks {
				c.addHook(k, newHook(k.Kind, o, webhook.NewMutatingWebhookAccessor("", o.Name, &o.Webhooks[i]), place))
			}
		})},
		{registration.WithKind("ValidatingWebhookConfiguration"), "validatingwebhookconfigurations", decoding(func(c *Cluster, k *kind, o *admissionregistrationv1.ValidatingWebhookConfiguration, place Place) {
			for i := range o.Webhooks {
				c.addHook(k, newHook(k.Kind, o, webhook.NewValidatingWebhookAccessor("", o.Name, &o.Webhooks[i]), place))
			}
		})},
		{schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, "customresourcedefinitions", (*Cluster).addDefinition},
		{schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}, "apiservices", (*Cluster).addAPIService},
		{v1.WithKind("Namespace"), "namespaces", decoding(func(c *Cluster, k *kind, o *corev1.Namespace, _ Place) { put(c, k, c.namespaces, o.Name, o) })},
		{v1.WithKind("Service"), "services", decoding(func(c *Cluster, k *kind, o *corev1.Service, _ Place) {
			put(c, k, c.services, o.Namespace+"/"+o.Name, o)
		})},
		{discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), "endpointslices", decoding(func(c *Cluster, k *kind, o *discoveryv1.EndpointSlice, _ Place) {
			key := o.Namespace + "/" + o.Labels[discoveryv1.LabelServiceName]
			if !c.Whole || c.backends[key] {
				put(c, k, c.slices, key, append(c.slices[key], o))
			}
		})},
		{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "poddisruptionbudgets", decoding(func(c *Cluster, k *kind, o *policyv1.PodDisruptionBudget, _ Place) {
			if !c.Whole || c.inNamespaces[o.Namespace] {
				put(c, k, c.budgets, o.Namespace+"/"+o.Name, o)
			}
		})},
		{apps.WithKind("Deployment"), "deployments", (*Cluster).addWorkload},
		{apps.WithKind("StatefulSet"), "statefulsets", (*Cluster).addWorkload},
		{apps.WithKind("DaemonSet"), "daemonsets", (*Cluster).addWorkload},
		{v1.WithKind("Pod"), "pods", decoding(func(c *Cluster, k *kind, o *corev1.Pod, _ Place) { c.addPod(k, o) })},
	}
}

// decoding returns what decodes an object, fills in its defaults and adds it. An object that names no namespace is in the default one.
func decoding[T any, O interface {
	*T
	runtime.Object
	metav1.Object
}](add func(*Cluster, *kind, O, Place)) func(*Cluster, *kind, []byte, Place) error {
	return func(c *Cluster, k *kind, text []byte, place Place) error {
		o := O(new(T))
		if err := json.Unmarshal(text, o); err != nil {
			return fmt.Errorf("%s: %w", k.Kind, err)
		}
		if o.GetName() == "" && o.GetGenerateName() == "" {
			return fmt.Errorf("%s: it has no name", k.Kind)
		}
		o.SetNamespace(namespaceOf(o))
		defaults.Default(o)
		add(c, k, o, place)
		return nil
	}
}

// Kinds returns the resources that a drill reads, in the order in which it needs them.
func Kinds() (list []schema.GroupVersionResource) {
	for _, k := range kinds() {
		list = append(list, k.GroupVersion().WithResource(k.resource))
	}
	return list
}

// Add adds an object, as JSON. An object of a kind that a drill does not read is left out.
func (c *Cluster) Add(of schema.GroupVersionKind, object []byte, place Place) error {
	return c.addOf(func(k *kind) bool { return k.GroupVersionKind == of }, object, place)
}

// AddOf is Add for an object of a resource of Kinds.
func (c *Cluster) AddOf(resource string, object []byte, place Place) error {
	return c.addOf(func(k *kind) bool { return k.resource == resource }, object, place)
}

func (c *Cluster) addOf(is func(*kind) bool, object []byte, place Place) error {
	for i := range c.kinds {
		if k := &c.kinds[i]; is(k) {
			return k.add(c, k, object, place)
		}
	}
	return nil
}

func namespaceOf(o metav1.Object) string { return cmp.Or(o.GetNamespace(), metav1.NamespaceDefault) }

// fits reports whether there is space for one more object of a kind, and notes it if not.
func (c *Cluster) fits(k *kind, have int) bool {
	most := maxOther
	switch k.Kind {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		most = maxHooks
	case "Pod", "Deployment", "StatefulSet", "DaemonSet":
		most = maxWorkloads
	}
	if have >= most && !c.full[k.Kind] {
		c.full[k.Kind] = true
		c.Unread = append(c.Unread, fmt.Sprintf("there are more than %d objects of the kind %s, or workloads: the rest is left out", most, k.Kind))
	}
	return have < most
}

func put[V any](c *Cluster, k *kind, in map[string]V, key string, value V) {
	if _, has := in[key]; has || c.fits(k, len(in)) {
		in[key] = value
	}
}

func (c *Cluster) addHook(k *kind, h *hook) {
	if c.fits(k, len(c.hooks)) {
		c.hooks = append(c.hooks, h)
		if s, _ := h.service(); s != nil {
			c.addBackend(s.Namespace, s.Name)
		}
	}
}

func (c *Cluster) addBackend(namespace, name string) {
	c.backends[namespace+"/"+name], c.inNamespaces[namespace] = true, true
}

// needs reports whether a workload matters: it runs what must answer, or what a cluster needs to come back.
func (c *Cluster) needs(g *podGroup) bool {
	return !c.Whole || g.namespace == system || c.inNamespaces[g.namespace] || g.nodeRole() != "" || g.isCertManager()
}

func (c *Cluster) addDefinition(k *kind, text []byte, place Place) error {
	o := new(unstructured.Unstructured)
	if err := utiljson.Unmarshal(text, &o.Object); err != nil { // an item of a list has no kind
		return fmt.Errorf("%s: %w", k.Kind, err)
	}
	versions, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "versions")
	list, _ := versions.([]any)
	for _, version := range list {
		if fields, ok := version.(map[string]any); ok {
			delete(fields, "schema") // which is most of it
		}
	}
	d := &definition{object: o, place: place}
	if d.read(); d.service != "" {
		c.addBackend(d.namespace, d.service)
	}
	put(c, k, c.definitions, o.GetName(), d)
	return nil
}

func (c *Cluster) addAPIService(k *kind, text []byte, place Place) error {
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
	if s := o.Spec.Service; s != nil && c.fits(k, len(c.apiServices)) {
		c.addBackend(s.Namespace, s.Name)
		c.apiServices = append(c.apiServices, &apiService{o.Metadata.Name, s.Namespace, s.Name, *cmp.Or(s.Port, new(int32(443))), place})
	}
	return nil
}

// group returns the group of that workload, and one that is not kept if it does not matter.
func (c *Cluster) group(as *kind, namespace, kind, name string, spec *corev1.PodSpec) *podGroup {
	key := kind + "/" + namespace + "/" + name
	if known := c.workloads[key]; known != nil {
		return known
	}
	g := &podGroup{namespace: namespace, kind: kind, name: name, replicas: -1, nodes: map[string]int{}, spec: *spec}
	if c.needs(g) && c.fits(as, len(c.workloads)) {
		c.workloads[key] = g
	}
	return g
}

// addWorkload adds a workload with its pod template.
func (c *Cluster) addWorkload(k *kind, text []byte, _ Place) error {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Replicas *int                   `json:"replicas"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return fmt.Errorf("%s: %w", k.Kind, err)
	}
	g := c.group(k, namespaceOf(&o.Metadata), k.Kind, o.Metadata.Name, &o.Spec.Template.Spec)
	g.pod = workload.AppendPod(nil, rawjson.Value(text).Get("spec", "template"), g.namespace, g.name)
	g.labels = o.Spec.Template.Labels
	if k.Kind != "DaemonSet" {
		g.replicas = *cmp.Or(o.Spec.Replicas, new(1))
	}
	return nil
}

// addPod adds a pod to the group of its workload.
func (c *Cluster) addPod(k *kind, o *corev1.Pod) {
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
	g := c.group(k, o.Namespace, owner, name, &o.Spec)
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
	created.Namespace, created.Name, created.Labels, created.Annotations, created.OwnerReferences = o.Namespace, o.Name, o.Labels, o.Annotations, o.OwnerReferences
	if owner != "static Pod" {
		created.Spec.NodeName = ""
	}
	text, err := json.Marshal(&created)
	if err != nil {
		return
	}
	g.pod, g.labels = text, o.Labels
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
