package drill

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Probe is a request that a cluster needs to come back, or that shows what stops.
type Probe struct {
	// Code is that of the finding if the request fails.
	Code Code
	// Title says what the request does: "create a pod of Deployment kube-system/coredns".
	Title string
	Request
}

const (
	nodeName  = "node-1"
	nodeLease = corev1.NamespaceNodeLease
	system    = metav1.NamespaceSystem
	anyName   = "any"
)

// The parts of Kubernetes that make the requests.
func kubelet() authenticationv1.UserInfo {
	return userInfo("system:node:"+nodeName, "system:nodes")
}

func scheduler() authenticationv1.UserInfo { return userInfo("system:kube-scheduler") }

// apiServer is how the API server calls itself.
func apiServer() authenticationv1.UserInfo { return userInfo("system:apiserver", "system:masters") }

// controller is a controller of kube-controller-manager.
func controller(name string) authenticationv1.UserInfo { return serviceAccount(system, name) }

func serviceAccount(namespace, name string) authenticationv1.UserInfo {
	return userInfo("system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

func userInfo(name string, groups ...string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: name, Groups: append(groups, "system:authenticated")}
}

// probes collects requests for a code.
type probes struct {
	code Code
	list []Probe
}

// add adds a request about GROUP/VERSION/RESOURCE[/SUBRESOURCE] of an object. "" is the core group.
func (p *probes) add(title string, by authenticationv1.UserInfo, operation admissionv1.Operation, resource, kind, namespace, name string, object []byte) {
	parts := append(strings.SplitN(resource, "/", 4), "")
	r := Request{
		Operation: operation, Resource: schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, Subresource: parts[3],
		Kind: schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: kind}, Namespace: namespace, Name: name, User: by,
	}
	if parts[2] == "namespaces" {
		r.Namespace = name // as the API server has it
	}
	if object == nil {
		object = objectOf(r.Kind, namespace, name, nil)
	}
	if operation != admissionv1.Delete {
		r.Object = object
	}
	if operation != admissionv1.Create {
		r.OldObject = object
	}
	p.list = append(p.list, Probe{p.code, title, r})
}

// objectOf returns an object that has nothing but metadata.
func objectOf(kind schema.GroupVersionKind, namespace, name string, labels map[string]string) []byte {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	text, err := json.Marshal(map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": metadata})
	if err != nil {
		return nil // strings can be written
	}
	return text
}

// addPods adds what brings the pods of a group back.
func (p *probes) addPods(g *podGroup) {
	by := controller("replicaset-controller")
	switch g.kind {
	case "DaemonSet":
		by = controller("daemon-set-controller")
	case "StatefulSet":
		by = controller("statefulset-controller")
	case "static Pod":
		by = kubelet()
	}
	pod := func(title string, by authenticationv1.UserInfo, operation admissionv1.Operation, sub string) {
		p.add(title+g.title(), by, operation, "/v1/pods"+sub, "Pod", g.namespace, g.name, g.pod)
	}
	pod("create a pod of ", by, admissionv1.Create, "")
	if g.kind != "static Pod" {
		p.add("schedule a pod of "+g.title(), scheduler(), admissionv1.Create, "/v1/pods/binding", "Binding", g.namespace, g.name, nil)
	}
	pod("write the status of a pod of ", kubelet(), admissionv1.Update, "/status")
	pod("delete a pod of ", kubelet(), admissionv1.Delete, "")
	account := cmp.Or(g.spec.ServiceAccountName, "default")
	code := p.code
	if code != OwnPods {
		p.code = Tokens
	}
	p.add("issue the token for a pod of "+g.title(), kubelet(), admissionv1.Create, "/v1/serviceaccounts/token", "TokenRequest", g.namespace, account, nil)
	p.list[len(p.list)-1].Kind = schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}
	p.code = code
}

// addWorkload adds what starts and repairs the workload of a group.
func (p *probes) addWorkload(g *podGroup) {
	plural := map[string]string{"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}[g.kind]
	if plural == "" {
		return
	}
	p.add("change "+g.title(), userInfo("kubernetes-admin"), admissionv1.Update, "apps/v1/"+plural, g.kind, g.namespace, g.name, nil)
	if g.kind == "Deployment" {
		p.add("create the ReplicaSet of "+g.title(), controller("deployment-controller"), admissionv1.Create, "apps/v1/replicasets", "ReplicaSet", g.namespace, g.name,
			objectOf(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, g.namespace, g.name, g.labels))
		p.add("scale "+g.title(), userInfo("kubernetes-admin"), admissionv1.Update, "apps/v1/deployments/scale", "Scale", g.namespace, g.name, nil)
		p.list[len(p.list)-1].Kind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	}
}

// addNamespace adds what the parts of a namespace do, besides creating pods, until its pods answer.
func (p *probes) addNamespace(namespace, account string, own bool) {
	by := serviceAccount(namespace, account)
	if own {
		p.add("write the certificate in a Secret in "+namespace, by, admissionv1.Update, "/v1/secrets", "Secret", namespace, anyName, nil)
		p.add("renew a Lease in "+namespace, by, admissionv1.Update, "coordination.k8s.io/v1/leases", "Lease", namespace, anyName, nil)
		p.add("write a ConfigMap in "+namespace, by, admissionv1.Update, "/v1/configmaps", "ConfigMap", namespace, anyName, nil)
	}
	p.add("write the addresses of a Service in "+namespace, controller("endpointslice-controller"), admissionv1.Update, "discovery.k8s.io/v1/endpointslices", "EndpointSlice", namespace, anyName, nil)
}

// clusterProbes returns the requests that any cluster needs to come back, in the order of their findings.
func (c *Cluster) clusterProbes() []Probe {
	const create, update = admissionv1.Create, admissionv1.Update
	p := probes{code: SystemPods}
	found := c.groups(func(g *podGroup) bool { return g.namespace == system })
	if len(found) == 0 {
		found = []*podGroup{barePod(system, nil)}
	}
	for _, g := range found[:min(maxProbed, len(found))] {
		p.addPods(g)
	}
	p.addNamespace(system, "coredns", false)

	p.code = NodePods
	for _, g := range c.groups(func(g *podGroup) bool { return g.namespace != system && g.nodeRole() != "" }) {
		p.addPods(g)
	}

	p.code = Nodes
	node := objectOf(corev1.SchemeGroupVersion.WithKind("Node"), "", nodeName, map[string]string{
		corev1.LabelHostname: nodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", "node-role.kubernetes.io/control-plane": "",
	})
	p.add("register a node", kubelet(), create, "/v1/nodes", "Node", "", nodeName, node)
	p.add("write the status of a node", kubelet(), update, "/v1/nodes/status", "Node", "", nodeName, node)
	p.add("change the taints of a node", controller("node-controller"), update, "/v1/nodes", "Node", "", nodeName, node)
	p.add("register the storage drivers of a node", kubelet(), update, "storage.k8s.io/v1/csinodes", "CSINode", "", nodeName, nil)
	const csr = "certificates.k8s.io/v1/certificatesigningrequests"
	p.add("ask for the certificate of a node", kubelet(), create, csr, "CertificateSigningRequest", "", anyName, nil)
	p.add("approve the certificate of a node", controller("certificate-controller"), update, csr+"/approval", "CertificateSigningRequest", "", anyName, nil)
	p.add("sign the certificate of a node", controller("certificate-controller"), update, csr+"/status", "CertificateSigningRequest", "", anyName, nil)

	p.code = Leases
	p.add("renew the Lease of a node", kubelet(), update, "coordination.k8s.io/v1/leases", "Lease", nodeLease, nodeName, nil)
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		p.add("renew the Lease of "+name, userInfo("system:"+name), update, "coordination.k8s.io/v1/leases", "Lease", system, name, nil)
	}

	p.code = Tokens
	p.add("review a token", userInfo("system:node:"+nodeName, "system:nodes"), create, "authentication.k8s.io/v1/tokenreviews", "TokenReview", "", "", nil)

	p.code = AccessReviews
	p.add("review the access of a user", kubelet(), create, "authorization.k8s.io/v1/subjectaccessreviews", "SubjectAccessReview", "", "", nil)
	p.add("review the own access", serviceAccount("default", "default"), create, "authorization.k8s.io/v1/selfsubjectaccessreviews", "SelfSubjectAccessReview", "", "", nil)

	p.code = APIServerStart
	for _, of := range [][2]string{
		{"rbac.authorization.k8s.io/v1/clusterroles", "ClusterRole"},
		{"rbac.authorization.k8s.io/v1/clusterrolebindings", "ClusterRoleBinding"},
		{"flowcontrol.apiserver.k8s.io/v1/flowschemas", "FlowSchema"},
		{"scheduling.k8s.io/v1/priorityclasses", "PriorityClass"},
	} {
		p.add("add the "+of[1]+" objects of a new version", apiServer(), create, of[0], of[1], "", "system:any", nil)
		p.add("change the "+of[1]+" objects of the system", apiServer(), update, of[0], of[1], "", "system:any", nil)
	}
	p.add("write the ConfigMap kube-system/extension-apiserver-authentication", apiServer(), update, "/v1/configmaps", "ConfigMap", system, "extension-apiserver-authentication", nil)
	p.add("renew the Lease of the API server", apiServer(), update, "coordination.k8s.io/v1/leases", "Lease", system, "apiserver", nil)
	p.add("write the addresses of the Service default/kubernetes", apiServer(), update, "discovery.k8s.io/v1/endpointslices", "EndpointSlice", metav1.NamespaceDefault, "kubernetes", nil)
	return p.list
}

// ordinaryProbes returns the creation of a pod without labels in each namespace. Files seldom have the default one.
func (c *Cluster) ordinaryProbes() []Probe {
	names := slices.Sorted(maps.Keys(c.namespaces))
	if !c.Whole && !slices.Contains(names, metav1.NamespaceDefault) {
		names = append(names, metav1.NamespaceDefault)
	}
	p := probes{code: NewPods}
	for _, name := range names[:min(maxProbed, len(names))] {
		p.add("create a pod in "+name, controller("replicaset-controller"), admissionv1.Create, "/v1/pods", "Pod", name, "", podWith(name, nil))
	}
	return p.list
}

// maxProbed bounds the workloads and namespaces for which requests are made.
const maxProbed = 5_000

// ownProbes returns the requests that bring back what is behind a Service.
func (c *Cluster) ownProbes(namespace string, groups []*podGroup) []Probe {
	p := probes{code: OwnPods}
	account := "default"
	for _, g := range groups {
		p.addPods(g)
		if g.spec.ServiceAccountName != "" {
			account = g.spec.ServiceAccountName
		}
	}
	p.code = OwnNamespace
	for _, g := range groups {
		p.addWorkload(g)
	}
	p.addNamespace(namespace, account, true)
	return p.list
}

// barePod returns a group that stands for pods of which only the labels are known.
func barePod(namespace string, set map[string]string) *podGroup {
	return &podGroup{namespace: namespace, name: anyName, labels: set, replicas: -1, pod: podWith(namespace, set)}
}

// podWith returns a pod with these labels.
func podWith(namespace string, set map[string]string) []byte {
	text, err := json.Marshal(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: anyName + "-", Labels: set},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.org/main:1"}}},
	})
	if err != nil {
		return nil // strings can be written
	}
	return text
}

// nodeRole returns for what every node needs the pods of the group, "" if it does not: it is computed from what they mount.
func (g *podGroup) nodeRole() string {
	for i := range g.spec.Volumes {
		if host := g.spec.Volumes[i].HostPath; host != nil && g.kind == "DaemonSet" {
			switch path := strings.TrimSuffix(host.Path, "/"); {
			case strings.HasPrefix(path, "/etc/cni") || strings.HasPrefix(path, "/opt/cni"):
				return "CNI"
			case strings.HasPrefix(path, "/var/lib/kubelet/plugins"):
				return "CSI"
			}
		}
	}
	if slices.Contains([]string{"system-node-critical", "system-cluster-critical"}, g.spec.PriorityClassName) {
		return "critical"
	}
	return ""
}

// maxDescribed is how many names a text has.
const maxDescribed = 3

// describe names some of a list.
func describe(titles []string) string { return describeSome(titles, len(titles)) }

// describeSome is describe for so many, of which the first are given.
func describeSome(titles []string, all int) string {
	titles = titles[:min(maxDescribed, len(titles))]
	text := strings.Join(titles, ", ")
	if more := all - len(titles); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
