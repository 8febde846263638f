package v1alpha1

import (
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Test has test cases for policies and profiles. It is a document of a directory
// for "gatehouse test", and not a resource of the cluster. A server ignores it.
//
// +kubebuilder:object:generate=false
type Test struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	Metadata TestMetadata `json:"metadata,omitzero"`
	// Policies are the names of the policies to evaluate, with their bindings and
	// exceptions, or kind/name if two kinds have a policy of that name. An empty
	// list evaluates none; without the field, all are evaluated.
	// +optional
	Policies []string `json:"policies,omitzero"`
	// Context are objects that policies and profiles look up for these cases:
	// namespaces, params, presets. They are added to those of the configuration,
	// and replace those of the same kind and name.
	// +optional
	Context []runtime.RawExtension `json:"context,omitempty"`
	// Cases are the test cases. At least one.
	Cases []TestCase `json:"cases"`
}

// TestMetadata is the metadata of a Test.
//
// +kubebuilder:object:generate=false
type TestMetadata struct {
	// Name is the name of the test, unique among the tests of a run. The default is
	// the name of the file and, if it has several documents, the number of the
	// document.
	// +optional
	Name string `json:"name,omitempty"`
	// Labels and Annotations are not interpreted.
	// +optional
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// TestCase is a request to the API server and its expected outcome.
//
// +kubebuilder:object:generate=false
type TestCase struct {
	// Name describes the case, as in "a foreign registry is refused". It is unique
	// in the document.
	Name string `json:"name"`
	// Operation is CREATE, UPDATE, DELETE or CONNECT. The default follows from the
	// objects: CREATE for an object, DELETE for an old object, UPDATE for both, and
	// CONNECT for options of a connection such as PodExecOptions.
	// +optional
	Operation admissionv1.Operation `json:"operation,omitempty"`
	// Object is the object of the request, or the options of a CONNECT. ObjectFile
	// is the path of a file with only this object, relative to the directory of the
	// document.
	// +optional
	Object     *runtime.RawExtension `json:"object,omitempty"`
	ObjectFile string                `json:"objectFile,omitempty"`
	// OldObject is the object before an update or a deletion. OldObjectFile is like
	// ObjectFile.
	// +optional
	OldObject     *runtime.RawExtension `json:"oldObject,omitempty"`
	OldObjectFile string                `json:"oldObjectFile,omitempty"`
	// Namespace is the namespace of the request for objects without a namespace. It
	// is ignored for cluster-scoped objects. The default is "default".
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// ObjectName is the name of the object if the object has none. For a CONNECT it
	// is the name of the pod.
	// +optional
	ObjectName string `json:"objectName,omitempty"`
	// User is the user of the request. Groups that the API server adds, such as
	// system:authenticated, can be omitted.
	// +optional
	User *authenticationv1.UserInfo `json:"user,omitempty"`
	// SubResource is the subresource of the request: "exec", "status".
	// +optional
	SubResource string `json:"subResource,omitempty"`
	// Options are the options of the operation, such as DeleteOptions.
	// +optional
	Options *runtime.RawExtension `json:"options,omitempty"`
	// Inject is whether defaults and sidecars are added before policies are
	// evaluated, as in the cluster. The default is true.
	// +optional
	Inject *bool `json:"inject,omitempty"`
	// Now is the current time for expiring exceptions. The default is the real
	// time.
	// +optional
	Now *metav1.Time `json:"now,omitempty"`
	// Expect is the expected outcome.
	Expect TestExpectation `json:"expect"`
}

// TestExpectation is the expected outcome of a request. Fields that are not set are
// not compared, except for the verdict. At least one must be set.
//
// +kubebuilder:object:generate=false
type TestExpectation struct {
	// Verdict is Allowed, Denied or CannotDecide. The default is Denied if
	// violations are expected, and Allowed otherwise.
	// +optional
	Verdict TestVerdict `json:"verdict,omitempty"`
	// Violations are all violations that deny the request, in any order. An empty
	// list expects none.
	// +optional
	Violations []TestViolation `json:"violations,omitzero"`
	// Audited are all violations that are warned about or audited and do not deny the
	// request, in any order. An empty list expects none.
	// +optional
	Audited []TestViolation `json:"audited,omitzero"`
	// Warnings are all warnings for the client, in order. An empty list expects
	// none.
	// +optional
	Warnings []string `json:"warnings,omitzero"`
	// AuditAnnotations must be among those of the validating endpoint. In an audit
	// event, the key has the name of the webhook as prefix.
	// +optional
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
	// Exceptions are all exceptions that were used, as namespace/name, in any
	// order. An empty list expects none.
	// +optional
	Exceptions []string `json:"exceptions,omitzero"`
	// Object is a part of the object after mutating policies and injection, with
	// the API server's defaults. Of a map only the given fields are compared, and
	// null expects that a field is absent. Elements of a list that have names are
	// found by them; any other list has these elements and no others. ObjectFile is
	// like that of a case.
	// +optional
	Object     *runtime.RawExtension `json:"object,omitempty"`
	ObjectFile string                `json:"objectFile,omitempty"`
	// Patch is all that mutating policies and injection change, in any order. An
	// empty list expects that nothing changes.
	// +optional
	Patch []TestOperation `json:"patch,omitzero"`
}

// TestOperation is an operation of a JSON patch.
//
// +kubebuilder:object:generate=false
type TestOperation struct {
	// Op is add, replace or remove.
	Op string `json:"op"`
	// Path is a JSON pointer.
	Path string `json:"path"`
	// Value is the new value.
	// +optional
	Value *runtime.RawExtension `json:"value,omitempty"`
}

// TestVerdict is the outcome of a request.
type TestVerdict string

// The values of TestVerdict.
const (
	TestAllowed      TestVerdict = "Allowed"
	TestDenied       TestVerdict = "Denied"
	TestCannotDecide TestVerdict = "CannotDecide"
)

// TestViolation describes a violation. Fields that are not set match anything. At
// least one must be set.
//
// +kubebuilder:object:generate=false
type TestViolation struct {
	// Policy is the name of the policy, or of the profile if injection rejects the
	// pod.
	// +optional
	Policy *string `json:"policy,omitempty"`
	// Binding is the name of the binding, or "" for a policy's own
	// validationActions.
	// +optional
	Binding *string `json:"binding,omitempty"`
	// Rule is the rule as in messages: "validations[memory-limit]", "validations[0]",
	// "podSecurity.hostPorts", "matchConditions", or "injection" if injection rejects
	// the pod. A rule with a name can also be given by its index.
	// +optional
	Rule *string `json:"rule,omitempty"`
	// Template is the path of the pod template, such as "spec.template", or "" for
	// the object itself.
	// +optional
	Template *string `json:"template,omitempty"`
	// Message is the whole message, without the names of policy and binding.
	// +optional
	Message *string `json:"message,omitempty"`
	// MessageContains is a part of the message. It excludes Message.
	// +optional
	MessageContains *string `json:"messageContains,omitempty"`
}
