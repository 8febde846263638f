package v1alpha1

// ScopeExtraKey is the key of a user's extra that holds the scope of its token. Only Gatehouse
// sets it.
const ScopeExtraKey = "gatehouse.dev/scope"

// The named scopes that Gatehouse defines.
const (
	// ScopeView is get, list and watch of everything but secrets.
	ScopeView = "view"
	// ScopeEdit is ScopeView, and writes of what the ClusterRole edit of Kubernetes is for, without
	// secrets and without the tokens of service accounts.
	ScopeEdit = "edit"
)

// TokenScope bounds what a token may be used for: by the name of a scope, or by rules. It gives
// no right: what it includes, the API server still authorizes by the rights of the user.
// Discovery, and reviews of the user itself, such as kubectl auth whoami, are in every scope.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.rules)",message="exactly one of name and rules is required"
type TokenScope struct {
	// Name is view, edit, or the name of a scope of the AuthenticationConfiguration. A change of that scope
	// applies to tokens that exist.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// Rules are what the token may be used for. Together they have at most 4096 bytes of JSON.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Rules []ScopeRule `json:"rules,omitempty"`
	// Namespaces narrow the scope further: to resources in one of these namespaces. Resources without a namespace,
	// requests across all namespaces, and URLs that are no resources are outside of it then. Without the field, all are inside.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`
}

// NamedScope is a scope that tokens can name.
type NamedScope struct {
	// Name is a DNS-1123 label other than view and edit.
	Name string `json:"name"`
	// Rules are what a token of the scope may be used for. At least one.
	Rules []ScopeRule `json:"rules"`
}

// ScopeRule is a rule in RBAC's form. It is about resources, or about URLs that are no resources.
//
// In contrast to RBAC, "*" never stands for what makes another identity, shows secrets, or redirects the requests of others: it has
// to be named.
type ScopeRule struct {
	// Verbs are the verbs. "*" stands for get, list, watch, create, update, patch, delete and deletecollection, and with
	// nonResourceURLs for HTTP's methods. Any other verb, such as impersonate, escalate, bind, approve or use, has to be named.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Verbs []string `json:"verbs"`
	// APIGroups are the groups of the resources, "" the core group, and "*" all groups. Required with resources.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	APIGroups []string `json:"apiGroups,omitempty"`
	// Resources are resources, "pods", and subresources, "pods/exec": a rule about pods is not about pods/exec. "*" stands for all
	// resources, but not for subresources, nor for secrets, nor for writing accesstokens, grants, tokenrevocations,
	// certificatesigningrequests, customresourcedefinitions, what grants roles, and what registers webhooks, admission policies and
	// API services. "*/status" and "*/scale" are allowed too.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=127
	Resources []string `json:"resources,omitempty"`
	// ResourceNames are names of objects. Without the field, all are allowed. With names, requests without one are outside of the rule: create, and list, watch and
	// deletecollection without the field selector metadata.name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ResourceNames []string `json:"resourceNames,omitempty"`
	// Namespaces are the namespaces of the resources. Without the field, the rule is about all, and about resources without a
	// namespace. With namespaces, requests across all namespaces are outside of the rule.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`
	// NonResourceURLs are paths that are no resources, such as "/metrics", or "/logs/*" with everything below. They exclude the
	// other fields but verbs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
}
