package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The annotations that Gatehouse reads from and writes to pods.
const (
	// InjectAnnotation on a pod is the pod's word on injection: "true" asks
	// for every profile that matches, "false" declines all of them. Any other
	// value refuses the pod, because a misspelt wish must not pass silently.
	InjectAnnotation = "sidecar.gatehouse.dev/inject"
	// StatusAnnotation on a pod records which profiles were applied and what
	// each added, as one line of JSON. Gatehouse alone writes it.
	StatusAnnotation = "sidecar.gatehouse.dev/status"
)

// GroupVersion is the API group and version of every kind in this package.
//
//nolint:gochecknoglobals // the constant that every Kubernetes API package exports under this name
var GroupVersion = schema.GroupVersion{Group: "gatehouse.dev", Version: "v1alpha1"}

// Injection says what happens to a pod that matches a profile and says nothing
// itself.
type Injection string

const (
	// OptIn injects only into pods that ask with InjectAnnotation: "true".
	OptIn Injection = "OptIn"
	// OptOut injects into every matching pod but those that decline with
	// InjectAnnotation: "false".
	OptOut Injection = "OptOut"
)

// SidecarProfile describes containers and volumes that are added to pods, and
// which pods get them. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type SidecarProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SidecarProfileSpec `json:"spec"`
}

// SidecarProfileList is a list of SidecarProfile.
//
// +kubebuilder:object:root=true
type SidecarProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SidecarProfile `json:"items"`
}

// SidecarProfileSpec is what a SidecarProfile wants.
type SidecarProfileSpec struct {
	// Match selects the pods that the profile is about. An empty match selects
	// every pod.
	// +optional
	Match SidecarMatch `json:"match,omitzero"`
	// Injection says what happens without a word from the pod. The default is
	// OptIn.
	// +optional
	// +kubebuilder:default=OptIn
	// +kubebuilder:validation:Enum=OptIn;OptOut
	Injection Injection `json:"injection,omitempty"`
	// Template is the partial pod that is added.
	Template SidecarTemplate `json:"template"`
}

// SidecarMatch selects pods. All of its parts must hold.
type SidecarMatch struct {
	// NamespaceSelector is matched against the labels of the pod's namespace.
	// Nil or empty matches every namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ObjectSelector is matched against the labels of the pod. Nil or empty
	// matches every pod.
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
}

// SidecarTemplate is a partial pod, taken literally.
type SidecarTemplate struct {
	// Spec holds the lists of a pod's spec that a profile may add to.
	Spec SidecarPodSpec `json:"spec"`
}

// SidecarPodSpec is the part of a pod's spec that a profile may add to. Names
// are unique within each list, and containers and init containers share one
// space of names, as in a pod.
type SidecarPodSpec struct {
	// InitContainers are put before the pod's own init containers, in the
	// order given, so that a native sidecar (restartPolicy: Always) runs while
	// the pod's init containers do.
	// +optional
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
	// Containers are put after the pod's own containers, in the order given.
	// +optional
	Containers []corev1.Container `json:"containers,omitempty"`
	// Volumes are put after the pod's own volumes, in the order given.
	// +optional
	Volumes []corev1.Volume `json:"volumes,omitempty"`
}

// AdmissionPolicy refuses, warns about or notes what the API server is asked
// to do. Its spec is that of a ValidatingAdmissionPolicy and more. It is
// cluster-scoped, and with validationActions of its own it needs no binding.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type AdmissionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AdmissionPolicySpec `json:"spec"`
}

// AdmissionPolicyList is a list of AdmissionPolicy.
//
// +kubebuilder:object:root=true
type AdmissionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AdmissionPolicy `json:"items"`
}

// AdmissionPolicySpec is upstream's ValidatingAdmissionPolicySpec with what
// Gatehouse adds. A policy has podSecurity, or validations, or both.
type AdmissionPolicySpec struct {
	admissionregistrationv1.ValidatingAdmissionPolicySpec `json:",inline"`

	// PodSecurity checks pods against a Pod Security Standard, natively.
	// +optional
	PodSecurity *PodSecurity `json:"podSecurity,omitempty"`
	// ValidationActions say what a violation leads to, as in a
	// ValidatingAdmissionPolicyBinding: Deny, Warn, Audit; Deny and Warn
	// exclude each other. Required.
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// PodSecurity names a Pod Security Standard,
// https://kubernetes.io/docs/concepts/security/pod-security-standards/.
type PodSecurity struct {
	// Level is privileged, baseline or restricted.
	// +kubebuilder:validation:Enum=privileged;baseline;restricted
	Level string `json:"level"`
	// Version is the Kubernetes minor version whose rules apply: latest or
	// v1.NN. The default is latest.
	// +optional
	// +kubebuilder:default=latest
	Version string `json:"version,omitempty"`
}

// AccessToken is an opaque bearer token, known by its id and the hash of its
// text; the text itself is stored nowhere. The object's name is the token's
// id. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type AccessToken struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AccessTokenSpec `json:"spec"`
}

// AccessTokenList is a list of AccessToken.
//
// +kubebuilder:object:root=true
type AccessTokenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AccessToken `json:"items"`
}

// AccessTokenSpec says what a token proves and until when.
type AccessTokenSpec struct {
	// SHA256 is the hash of the whole token text, in 64 lower-case hexadecimal
	// digits.
	SHA256 string `json:"sha256"`
	// User is the identity that the token proves. Names, groups and extra keys
	// that Kubernetes reserves for itself are refused.
	User authenticationv1.UserInfo `json:"user"`
	// ExpiresAt is the moment from which the token is refused.
	ExpiresAt metav1.Time `json:"expiresAt"`
	// Audiences are the audiences that the token is good for. Without any, it
	// is good for the API server's own audiences and no others.
	// +optional
	Audiences []string `json:"audiences,omitempty"`
}
