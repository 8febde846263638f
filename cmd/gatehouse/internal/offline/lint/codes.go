package lint

// Code names a diagnostic, for people who look it up and for v1alpha1.LintIgnoreAnnotation. Codes
// do not change.
type Code string

// The codes. docs/lint.md has an example and a remedy for each.
const (
	// Type is an expression that does not fit the schema of a kind.
	Type Code = "type"
	// OptionalField is a field or key that an object need not have.
	OptionalField Code = "optional-field"
	// NullObject is object on DELETE, or oldObject on CREATE.
	NullObject Code = "null-object"
	// NamespaceObject is namespaceObject in a match condition.
	NamespaceObject Code = "namespace-object"
	// OrValue is a function of optional values on another value.
	OrValue Code = "or-value"
	// CELVersion is an expression that other versions of Kubernetes refuse.
	CELVersion Code = "cel-version"
	// InvalidLiteral is a function that fails for the literal it is given.
	InvalidLiteral Code = "invalid-literal"
	// UnknownResource is a resource that its API group does not have.
	UnknownResource Code = "unknown-resource"
	// Operation is an operation that a resource never has.
	Operation Code = "operation"
	// Scope is a scope that a rule's resources do not have.
	Scope Code = "scope"
	// Excluded is a rule that excludeResourceRules cover.
	Excluded Code = "excluded"
	// Selector is a selector that contradicts itself.
	Selector Code = "selector"
	// NamespaceSelector is one that selects no namespace that is known.
	NamespaceSelector Code = "namespace-selector"
	// MatchCondition is one that match constraints say as well.
	MatchCondition Code = "match-condition"
	// BeingDeleted is an expression that spares objects that are being deleted.
	BeingDeleted Code = "being-deleted"
	// Constant is an expression whose value does not depend on the request.
	Constant Code = "constant"
	// Expensive is an expression that may cost more than the API server allows.
	Expensive Code = "expensive"
	// Regex is a regular expression that is taken from the object.
	Regex Code = "regex"
	// UnusedVariable is a variable that no expression uses.
	UnusedVariable Code = "unused-variable"
	// MissingMessage is a validation without a message.
	MissingMessage Code = "missing-message"
	// Duplicate is a validation that is there twice.
	Duplicate Code = "duplicate"
	// PodSecurityVersion is a version that the Pod Security Standards do not have yet.
	PodSecurityVersion Code = "pod-security-version"
	// DoubleBraces is a string of a sidecar template that looks like a template of Helm or Istio.
	DoubleBraces Code = "double-braces"
	// NamespaceName is a name that no namespace can have.
	NamespaceName Code = "namespace-name"
	// Expired is an exception that does nothing any more.
	Expired Code = "expired"
	// Expires is an exception that will expire soon.
	Expires Code = "expires"
	// RuleIndex is a rule that an exception names by its index in a policy whose rules have names.
	RuleIndex Code = "rule-index"
	// RuleChanged is a rule that an exception names by its index and that has changed since.
	RuleChanged Code = "rule-changed"
	// UnknownCode is a code in v1alpha1.LintIgnoreAnnotation that there is not.
	UnknownCode Code = "unknown-code"
)

// Codes returns all codes, in the order in which they are documented.
func Codes() []Code {
	return []Code{
		Type, OptionalField, NullObject, NamespaceObject, OrValue, InvalidLiteral, CELVersion,
		UnknownResource, Operation, Scope, Excluded, Selector, NamespaceSelector, MatchCondition, BeingDeleted,
		Constant, Expensive, Regex, UnusedVariable, MissingMessage, Duplicate, PodSecurityVersion,
		DoubleBraces, NamespaceName, Expired, Expires, RuleIndex, RuleChanged, UnknownCode,
	}
}
