package convert

import (
	"encoding/json"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of this file have the fields of Kyverno's documents that mean something here. Others are reported.

// policy is a ClusterPolicy, or a Policy of a namespace.
type policy struct {
	Kind     string
	Metadata metav1.ObjectMeta
	Spec     policySpec
	Rules    []rule
}

type policySpec struct {
	Rules                            []json.RawMessage `json:"rules"`
	ApplyRules                       string            `json:"applyRules,omitempty"`
	FailurePolicy                    string            `json:"failurePolicy,omitempty"`
	ValidationFailureAction          string            `json:"validationFailureAction,omitempty"`
	ValidationFailureActionOverrides []actionOverride  `json:"validationFailureActionOverrides,omitempty"`
	EmitWarning                      bool              `json:"emitWarning,omitempty"`
	Admission                        *bool             `json:"admission,omitempty"`
	WebhookConfiguration             webhookSettings   `json:"webhookConfiguration,omitzero"`
}

// howKyvernoWorks returns the fields of the spec that do not say what a policy decides.
func howKyvernoWorks() []string {
	return []string{
		"background", "schemaValidation", "webhookTimeoutSeconds", "mutateExistingOnPolicyUpdate", "generateExistingOnPolicyUpdate", "generateExisting", "useServerSideApply",
	}
}

type webhookSettings struct {
	FailurePolicy   string                                   `json:"failurePolicy,omitempty"`
	TimeoutSeconds  any                                      `json:"timeoutSeconds,omitempty"`
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
}

type actionOverride struct {
	Action            string                `json:"action,omitempty"`
	Namespaces        []string              `json:"namespaces,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

type rule struct {
	Name                   string                                   `json:"name"`
	Context                []contextEntry                           `json:"context,omitempty"`
	Match                  filters                                  `json:"match"`
	Exclude                *filters                                 `json:"exclude,omitempty"`
	Preconditions          any                                      `json:"preconditions,omitempty"`
	CELPreconditions       []admissionregistrationv1.MatchCondition `json:"celPreconditions,omitempty"`
	Mutate                 *mutateRule                              `json:"mutate,omitempty"`
	Validate               *validateRule                            `json:"validate,omitempty"`
	Generate               any                                      `json:"generate,omitempty"`
	VerifyImages           any                                      `json:"verifyImages,omitempty"`
	ImageExtractors        any                                      `json:"imageExtractors,omitempty"`
	ReportProperties       any                                      `json:"reportProperties,omitempty"`
	SkipBackgroundRequests any                                      `json:"skipBackgroundRequests,omitempty"`
}

// filters select requests: all or any of several, or the one that stands here itself.
type filters struct {
	Any []filter `json:"any,omitempty"`
	All []filter `json:"all,omitempty"`
	filter
}

// filter selects requests by the object and the user.
type filter struct {
	Resources    resourceFilter   `json:"resources,omitzero"`
	Roles        []string         `json:"roles,omitempty"`
	ClusterRoles []string         `json:"clusterRoles,omitempty"`
	Subjects     []rbacv1.Subject `json:"subjects,omitempty"`
}

type resourceFilter struct {
	Kinds             []string              `json:"kinds,omitempty"`
	Name              string                `json:"name,omitempty"`
	Names             []string              `json:"names,omitempty"`
	Namespaces        []string              `json:"namespaces,omitempty"`
	Annotations       map[string]string     `json:"annotations,omitempty"`
	Selector          *metav1.LabelSelector `json:"selector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	Operations        []string              `json:"operations,omitempty"`
}

type contextEntry struct {
	Name            string              `json:"name"`
	ConfigMap       *configMapReference `json:"configMap,omitempty"`
	Variable        *contextVariable    `json:"variable,omitempty"`
	APICall         *apiCall            `json:"apiCall,omitempty"`
	ImageRegistry   any                 `json:"imageRegistry,omitempty"`
	GlobalReference any                 `json:"globalReference,omitempty"`
}

type configMapReference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

type contextVariable struct {
	Value    any    `json:"value,omitempty"`
	JMESPath string `json:"jmesPath,omitempty"`
	Default  any    `json:"default,omitempty"`
}

type apiCall struct {
	URLPath  string `json:"urlPath,omitempty"`
	JMESPath string `json:"jmesPath,omitempty"`
	Method   string `json:"method,omitempty"`
	Data     any    `json:"data,omitempty"`
	Service  any    `json:"service,omitempty"`
	Default  any    `json:"default,omitempty"`
}

type validateRule struct {
	FailureAction           string             `json:"failureAction,omitempty"`
	FailureActionOverrides  []actionOverride   `json:"failureActionOverrides,omitempty"`
	AllowExistingViolations *bool              `json:"allowExistingViolations,omitempty"`
	Message                 string             `json:"message,omitempty"`
	Manifests               any                `json:"manifests,omitempty"`
	PodSecurity             *kyvernoPSS        `json:"podSecurity,omitempty"`
	CEL                     *kyvernoExpression `json:"cel,omitempty"`
	Assert                  any                `json:"assert,omitempty"`
	checks
}

// checks are what an object, or an element of a loop, is checked by: one of them.
type checks struct {
	Pattern    any               `json:"pattern,omitempty"`
	AnyPattern []any             `json:"anyPattern,omitempty"`
	Deny       *deny             `json:"deny,omitempty"`
	ForEach    []forEachValidate `json:"foreach,omitempty"`
}

type deny struct {
	Conditions any `json:"conditions,omitempty"`
}

// loop is what loops of both kinds have.
type loop struct {
	List          string         `json:"list,omitempty"`
	Context       []contextEntry `json:"context,omitempty"`
	Preconditions any            `json:"preconditions,omitempty"`
}

type forEachValidate struct {
	ElementScope *bool `json:"elementScope,omitempty"`
	loop
	checks
}

type condition struct {
	Key      any    `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    any    `json:"value,omitempty"`
	Message  string `json:"message,omitempty"`
	// field is where the condition stands.
	field string
}

type kyvernoPSS struct {
	Level   string            `json:"level,omitempty"`
	Version string            `json:"version,omitempty"`
	Exclude []excludedControl `json:"exclude,omitempty"`
}

type kyvernoExpression struct {
	Generate         *bool                                     `json:"generate,omitempty"`
	Expressions      []admissionregistrationv1.Validation      `json:"expressions,omitempty"`
	ParamKind        *admissionregistrationv1.ParamKind        `json:"paramKind,omitempty"`
	ParamRef         *admissionregistrationv1.ParamRef         `json:"paramRef,omitempty"`
	AuditAnnotations []admissionregistrationv1.AuditAnnotation `json:"auditAnnotations,omitempty"`
	Variables        []admissionregistrationv1.Variable        `json:"variables,omitempty"`
}

type mutateRule struct {
	Targets                      []any `json:"targets,omitempty"`
	MutateExistingOnPolicyUpdate any   `json:"mutateExistingOnPolicyUpdate,omitempty"`
	changes
}

// changes are how an object is changed: one of them.
type changes struct {
	PatchStrategicMerge any             `json:"patchStrategicMerge,omitempty"`
	PatchesJSON6902     string          `json:"patchesJson6902,omitempty"`
	ForEach             []forEachMutate `json:"foreach,omitempty"`
}

type forEachMutate struct {
	Order string `json:"order,omitempty"`
	loop
	changes
}
