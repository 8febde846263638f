package v1alpha1

import (
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Test holds cases for the policies and profiles that it is kept beside. It is a
// document of a directory, for "gatehouse test", and not a resource of the
// cluster: a server passes it over.
//
// +kubebuilder:object:generate=false
type Test struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	Metadata TestMetadata `json:"metadata,omitzero"`
	// Policies are the names of the policies that the cases are about, or
	// kind/name where two kinds have a policy of one name. Only these, with their
	// bindings and exceptions, are evaluated, and others cannot get in their way.
	// An empty list stands for none, and without the field all are.
	// +optional
	Policies []string `json:"policies,omitzero"`
	// Context are objects that policies and profiles look up for the cases of
	// this document: namespaces, params, presets. They are there beside those of
	// the configuration, and in the place of those of the same kind and name.
	// +optional
	Context []runtime.RawExtension `json:"context,omitempty"`
	// Cases are what is tried. At least one.
	Cases []TestCase `json:"cases"`
}

// TestMetadata is what a document that is no object of a cluster has of an
// object's metadata.
//
// +kubebuilder:object:generate=false
type TestMetadata struct {
	// Name says what is tested. It is unique among the tests that are run. The
	// default is the file, and the number of the document in it where it has
	// several.
	// +optional
	Name string `json:"name,omitempty"`
	// Labels and Annotations are for people and their tools.
	// +optional
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// TestCase is a request to the API server and what must become of it.
//
// +kubebuilder:object:generate=false
type TestCase struct {
	// Name says what is shown, as in "a foreign registry is refused". It is
	// unique in the document.
	Name string `json:"name"`
	// Operation is CREATE, UPDATE, DELETE or CONNECT. Without it, an object
	// alone is created, an old object alone is deleted, with both it is an
	// update, and options of a connection, such as a PodExecOptions, are a
	// CONNECT.
	// +optional
	Operation admissionv1.Operation `json:"operation,omitempty"`
	// Object is the object as it is asked for, and of a CONNECT its options.
	// ObjectFile is the path, from the directory of the document, of a file with
	// that object and nothing else.
	// +optional
	Object     *runtime.RawExtension `json:"object,omitempty"`
	ObjectFile string                `json:"objectFile,omitempty"`
	// OldObject is the object as it is before an update or a deletion, and
	// OldObjectFile as ObjectFile.
	// +optional
	OldObject     *runtime.RawExtension `json:"oldObject,omitempty"`
	OldObjectFile string                `json:"oldObjectFile,omitempty"`
	// Namespace is that of the request, for objects that do not say theirs. It
	// does not count for what is in none. The default is "default".
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// ObjectName is the name of the object, where that does not say it: of a
	// CONNECT the name of the pod.
	// +optional
	ObjectName string `json:"objectName,omitempty"`
	// User is who asks. The groups that the API server puts everybody into, such
	// as system:authenticated, need not be written.
	// +optional
	User *authenticationv1.UserInfo `json:"user,omitempty"`
	// SubResource is the one that is asked for: "exec", "status".
	// +optional
	SubResource string `json:"subResource,omitempty"`
	// Options are those of the operation, such as a DeleteOptions.
	// +optional
	Options *runtime.RawExtension `json:"options,omitempty"`
	// Inject says whether objects get the API server's defaults, and pods and pod
	// templates their sidecars, before policies see them, as in the cluster. The
	// default is true. With false policies see what is written here.
	// +optional
	Inject *bool `json:"inject,omitempty"`
	// Now is the time by which exceptions expire. The default is the real time.
	// +optional
	Now *metav1.Time `json:"now,omitempty"`
	// Expect is what must become of the request.
	Expect TestExpectation `json:"expect"`
}

// TestExpectation is what must become of a request. What is left out is not
// looked at, but for the verdict; something must be given.
//
// +kubebuilder:object:generate=false
type TestExpectation struct {
	// Verdict is Allowed, Denied or CouldNotTell. The default is Denied if
	// violations are expected, and Allowed if not.
	// +optional
	Verdict TestVerdict `json:"verdict,omitempty"`
	// Violations are all that refuse the request, in any order. An empty list
	// stands for none.
	// +optional
	Violations []TestViolation `json:"violations,omitzero"`
	// Warnings are all that the client gets, in their order. An empty list
	// stands for none.
	// +optional
	Warnings []string `json:"warnings,omitzero"`
	// AuditAnnotations are among those that the validating endpoint makes. In an
	// audit event the name of the webhook is in front of the key.
	// +optional
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
	// Exceptions are all that let a violation pass, as namespace/name, in any
	// order. An empty list stands for none.
	// +optional
	Exceptions []string `json:"exceptions,omitzero"`
}

// TestVerdict is the outcome of a request.
type TestVerdict string

// The values of TestVerdict.
const (
	TestAllowed      TestVerdict = "Allowed"
	TestDenied       TestVerdict = "Denied"
	TestCouldNotTell TestVerdict = "CouldNotTell"
)

// TestViolation describes a violation. What is left out may be anything; at
// least one field is given.
//
// +kubebuilder:object:generate=false
type TestViolation struct {
	// Policy is the policy's name, or the profile's where injection refuses the
	// pod.
	// +optional
	Policy *string `json:"policy,omitempty"`
	// Binding is the binding's name, and "" for the actions that a policy has of
	// its own.
	// +optional
	Binding *string `json:"binding,omitempty"`
	// Rule is the rule as answers name it: "validations[0]",
	// "podSecurity.hostPorts", "matchConditions", and "injection" where
	// injection refuses the pod.
	// +optional
	Rule *string `json:"rule,omitempty"`
	// Template is the path of the pod template, such as "spec.template", and ""
	// for the object itself.
	// +optional
	Template *string `json:"template,omitempty"`
	// Message is the whole message, without the names of policy and binding.
	// +optional
	Message *string `json:"message,omitempty"`
	// MessageContains is a part of the message. It excludes Message.
	// +optional
	MessageContains *string `json:"messageContains,omitempty"`
}
