package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Injection is what happens to a pod that matches a profile if neither the pod nor
// its namespace has InjectAnnotation for it.
type Injection string

const (
	// OptIn injects only if InjectAnnotation of the pod or its namespace requests
	// it.
	OptIn Injection = "OptIn"
	// OptOut injects into every matching pod unless InjectAnnotation of the pod or
	// its namespace opts out.
	OptOut Injection = "OptOut"
)

// SidecarProfile selects pods and describes what is added to them. It is
// cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghsp,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Injection",type=string,priority=1,JSONPath=`.spec.injection`
// +kubebuilder:printcolumn:name="Percent",type=integer,priority=1,JSONPath=`.spec.rollout.percent`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.pods.matched`
// +kubebuilder:printcolumn:name="Injected",type=integer,JSONPath=`.status.pods.injected`
// +kubebuilder:printcolumn:name="Stale",type=integer,JSONPath=`.status.pods.stale`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['true', 'false'])",message="a profile cannot be named \"true\" or \"false\": these have a meaning of their own in the annotation sidecar.gatehouse.dev/inject"
type SidecarProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	Spec SidecarProfileSpec `json:"spec"`

	// Status is reported by Gatehouse in a cluster. It is ignored in a directory.
	// +optional
	Status SidecarProfileStatus `json:"status,omitzero"`
}

// SidecarProfileList is a list of SidecarProfile.
//
// +kubebuilder:object:root=true
type SidecarProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SidecarProfile `json:"items"`
}

// SidecarProfileSpec is the desired state of a SidecarProfile.
type SidecarProfileSpec struct {
	// Match selects pods. An empty match selects every pod.
	// +optional
	Match SidecarMatch `json:"match,omitzero"`
	// Injection is what happens if neither the pod nor its namespace has the inject
	// annotation: OptIn (default) or OptOut.
	// +optional
	// +kubebuilder:default=OptIn
	// +kubebuilder:validation:Enum=OptIn;OptOut
	Injection Injection `json:"injection,omitempty"`
	// Rollout applies the profile to a percentage of the workloads that it selects.
	// +optional
	Rollout *SidecarRollout `json:"rollout,omitempty"`
	// Placement is the position of the profile's containers among those of the pod
	// and of other profiles.
	// +optional
	Placement SidecarPlacement `json:"placement,omitzero"`
	// HostNetwork is what happens to a pod with hostNetwork: true, where a sidecar
	// listens on ports of the node: Skip (default) or Inject.
	// +optional
	// +kubebuilder:default=Skip
	// +kubebuilder:validation:Enum=Skip;Inject
	HostNetwork SpecialPodAction `json:"hostNetwork,omitempty"`
	// PodsThatEnd is what happens to a pod that runs to completion (restartPolicy
	// Never or OnFailure) if the profile has a container that would keep it
	// running, because it is not a native sidecar: Skip (default), Refuse or
	// Inject.
	// +optional
	// +kubebuilder:default=Skip
	// +kubebuilder:validation:Enum=Skip;Refuse;Inject
	PodsThatEnd SpecialPodAction `json:"podsThatEnd,omitempty"`
	// OnConflict is what happens if the pod already has another value where the
	// profile adds one: a port, a mount path, a volume name, a label, a field. The
	// default is Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	// +kubebuilder:validation:Enum=Refuse;Skip;Keep
	OnConflict ConflictAction `json:"onConflict,omitempty"`
	// OnSameName is what happens to a container of the pod with the name of a
	// container in the template. The default is Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	// +kubebuilder:validation:Enum=Refuse;Keep;Replace
	OnSameName SameNameAction `json:"onSameName,omitempty"`
	// DistinctUsers are containers of the template whose runAsUser no other
	// container of the pod may use. Traffic redirection, for example, distinguishes
	// a proxy from the application by its user.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	DistinctUsers []string `json:"distinctUsers,omitempty"`
	// Parameters can be set by annotations of the pod or its namespace.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Parameters []SidecarParameter `json:"parameters,omitempty"`
	// Presets are ConfigMaps whose values expressions read when a pod is created.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Presets []SidecarPreset `json:"presets,omitempty"`
	// Template is the partial pod that is merged into the pod.
	// +optional
	Template SidecarTemplate `json:"template,omitzero"`
	// AppContainers are additions to the application's containers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	AppContainers []AppContainerAdditions `json:"appContainers,omitempty"`
	// Share copies volume mounts and environment variables of the application's
	// containers to containers of the template.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Share []SidecarShare `json:"share,omitempty"`
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
	// MatchConditions are CEL expressions over pod, namespace and presets. All must
	// be true. As in a webhook configuration, a condition that is false excludes
	// the pod even if another condition fails.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
}

// SidecarRollout applies a profile to a percentage of workloads. The selection
// depends only on the namespace and name of the workload that owns the pod: it is
// the same for all pods of a workload, in every replica, in a dry run and offline.
// A workload that is selected at one percentage is selected at every higher one.
type SidecarRollout struct {
	// Percent is the percentage of workloads, from 0 to 100.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent"`
	// Replaces names the profile that this one replaces in the selected workloads;
	// the others keep that profile. Annotations of pods and namespaces that name
	// the replaced profile apply to this one too. Without it, pods of other
	// workloads are not injected.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Replaces string `json:"replaces,omitempty"`
}

// Position is a position relative to the application's containers.
type Position string

const (
	// First is before the application's containers.
	First Position = "First"
	// Last is after the application's containers.
	Last Position = "Last"
)

// SidecarPlacement is the position of the profile's containers. Profiles without a
// declared order are ordered by name.
type SidecarPlacement struct {
	// InitContainers is the position of init containers, including native sidecars.
	// The default is First: a native sidecar then starts before the application's
	// init containers.
	// +optional
	// +kubebuilder:default=First
	// +kubebuilder:validation:Enum=First;Last
	InitContainers Position `json:"initContainers,omitempty"`
	// Containers is the position of containers. The default is Last.
	// +optional
	// +kubebuilder:default=Last
	// +kubebuilder:validation:Enum=First;Last
	Containers Position `json:"containers,omitempty"`
	// Before names profiles whose containers come after this profile's.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Before []string `json:"before,omitempty"`
	// After names profiles whose containers come before this profile's.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	After []string `json:"after,omitempty"`
}

// SpecialPodAction is what happens to a pod that a sidecar may break.
type SpecialPodAction string

const (
	// SkipPod does not apply the profile, and reports the reason.
	SkipPod SpecialPodAction = "Skip"
	// RefusePod rejects the pod.
	RefusePod SpecialPodAction = "Refuse"
	// InjectPod applies the profile as to any other pod.
	InjectPod SpecialPodAction = "Inject"
)

// ConflictAction is what happens on a conflict.
type ConflictAction string

const (
	// RefuseConflict rejects the pod and lists every conflict.
	RefuseConflict ConflictAction = "Refuse"
	// SkipConflict does not apply the profile, with a warning.
	SkipConflict ConflictAction = "Skip"
	// KeepConflict keeps the value of the pod and does not add the conflicting one,
	// with a warning.
	KeepConflict ConflictAction = "Keep"
)

// SameNameAction is what happens to a container of the pod with the name of a
// container in the template.
type SameNameAction string

const (
	// RefuseSameName rejects the pod.
	RefuseSameName SameNameAction = "Refuse"
	// KeepSameName keeps every field of the pod's container and adds the missing
	// fields of the template, so that a pod's author can override part of a
	// sidecar.
	KeepSameName SameNameAction = "Keep"
	// ReplaceSameName replaces the pod's container with the template's. The status
	// annotation keeps the original.
	ReplaceSameName SameNameAction = "Replace"
)

// ParameterType is the type of a parameter. Expressions see integer and port as
// int, boolean as bool, list as list(string), and all others as string.
type ParameterType string

// The types of parameters.
const (
	StringParameter   ParameterType = "string"
	IntegerParameter  ParameterType = "integer"
	BooleanParameter  ParameterType = "boolean"
	QuantityParameter ParameterType = "quantity"
	DurationParameter ParameterType = "duration"
	PortParameter     ParameterType = "port"
	EnumParameter     ParameterType = "enum"
	// ListParameter is a list of strings, written "a,b,c".
	ListParameter ParameterType = "list"
)

// SidecarParameter is a value that a pod or a namespace can set with the annotation
// <profile>.sidecar.gatehouse.dev/<parameter>. For each parameter, the pod
// overrides the namespace, and the namespace overrides the default. Expressions
// read it as params.<name>.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'enum' || (has(self.enum) && size(self.enum) > 0)",message="is required for a parameter of type enum: list the values allowed",fieldPath=".enum",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.enum) || size(self.enum) == 0 || self.type in ['enum', 'string', 'list']",message="a parameter of this type has no enum: enum, string and list have",fieldPath=".enum"
// +kubebuilder:validation:XValidation:rule="!has(self.pattern) || size(self.pattern) == 0 || self.type in ['string', 'list']",message="a parameter of this type has no pattern: string and list have",fieldPath=".pattern"
// +kubebuilder:validation:XValidation:rule="!has(self.maxLength) || self.type in ['string', 'list']",message="a parameter of this type has no maxLength: string and list have",fieldPath=".maxLength"
// +kubebuilder:validation:XValidation:rule="!has(self.maxItems) || self.type == 'list'",message="a parameter of this type has no maxItems: list has",fieldPath=".maxItems"
type SidecarParameter struct {
	// Name is a letter followed by letters and digits.
	// +kubebuilder:validation:Pattern=`^[a-z][A-Za-z0-9]*$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Description explains the parameter.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// Type is one of string, integer, boolean, quantity, duration, port, enum
	// and list.
	// +kubebuilder:validation:Enum=string;integer;boolean;quantity;duration;port;enum;list
	Type ParameterType `json:"type"`
	// Default applies if neither the pod nor the namespace sets the parameter.
	// Without a default, the parameter is required.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Default *ParameterValue `json:"default,omitempty"`
	// Minimum is the smallest allowed integer, port, quantity or duration.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Minimum *ParameterValue `json:"minimum,omitempty"`
	// Maximum is the largest allowed integer, port, quantity or duration.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Maximum *ParameterValue `json:"maximum,omitempty"`
	// Pattern is a regular expression (RE2) that the whole string, or each string
	// of a list, must match.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Pattern string `json:"pattern,omitempty"`
	// MaxLength is the maximum number of characters of a string, or of each string
	// of a list. The default is 1024.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=262144
	MaxLength *int32 `json:"maxLength,omitempty"`
	// MaxItems is the maximum number of strings in a list. The default is 64.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=262144
	MaxItems *int32 `json:"maxItems,omitempty"`
	// Enum lists the allowed values. It is required for the type enum, and optional
	// for string and for the strings of a list.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Enum []string `json:"enum,omitempty"`
	// OnInvalid is what happens to a pod whose value is missing or not allowed:
	// Refuse (default) rejects the pod; Skip does not apply the profile, with a
	// warning.
	// +optional
	// +kubebuilder:default=Refuse
	// +kubebuilder:validation:Enum=Refuse;Skip
	OnInvalid InvalidAction `json:"onInvalid,omitempty"`
}

// InvalidAction is what happens to a pod with an invalid parameter.
type InvalidAction string

const (
	// RefuseInvalid rejects the pod.
	RefuseInvalid InvalidAction = "Refuse"
	// SkipInvalid does not apply the profile, with a warning.
	SkipInvalid InvalidAction = "Skip"
)

// SidecarPreset is a set of values that expressions read as
// presets.<name>["key"].
type SidecarPreset struct {
	// Name is a letter followed by letters and digits.
	// +kubebuilder:validation:Pattern=`^[a-z][A-Za-z0-9]*$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// ConfigMap is the ConfigMap with the values in its data.
	ConfigMap ObjectReference `json:"configMap"`
}

// ObjectReference names an object in a namespace.
type ObjectReference struct {
	// Namespace is the namespace of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
	// Name is the name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// SidecarTemplate is a partial pod. Its strings may contain CEL expressions over
// pod, namespace, params and presets, as ${…}; $${ is a literal ${. Names of
// containers, volumes, ports and fields are literal.
type SidecarTemplate struct {
	// Metadata has labels and annotations to add.
	// +optional
	Metadata SidecarTemplateMetadata `json:"metadata,omitzero"`
	// Spec is a partial pod spec: containers, initContainers (native sidecars have
	// restartPolicy Always), volumes, and other fields of a pod. ephemeralContainers,
	// hostNetwork, hostPID, hostIPC, nodeName and fields of the priority are not allowed.
	//
	// Containers with new names are added. Every other value is added if the pod has
	// none, or only the API server's default; another value is a conflict. Containers,
	// volumes and imagePullSecrets are found by name; environment variables by name, ports
	// by containerPort and protocol, mounts by mountPath. hostAliases are found by ip,
	// topologySpreadConstraints by topologyKey and whenUnsatisfiable, readinessGates by
	// conditionType. Lists that are united: tolerations, envFrom, nameservers and searches
	// of dnsConfig, supplementalGroups, capabilities, hostnames, and the terms of affinity
	// but those of required node affinity. Objects are merged field by field, except
	// seccompProfile, appArmorProfile and the action of a probe or hook, which are one
	// value, as are args, command and every other list.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Spec runtime.RawExtension `json:"spec,omitzero"`
}

// SidecarTemplateMetadata is the metadata that a profile adds to a pod.
type SidecarTemplateMetadata struct {
	// Labels are added to the pod's.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are added to the pod's.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// AppContainerAdditions are additions to the application's containers, which are
// those that no profile added.
type AppContainerAdditions struct {
	// Names are the names of the containers. Empty selects all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`
	// Except are the names of containers that are left unchanged.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Except []string `json:"except,omitempty"`
	// InitContainers also selects the application's init containers, including
	// native sidecars.
	// +optional
	InitContainers bool `json:"initContainers,omitempty"`
	// Template is a partial container without name and restartPolicy. Existing
	// values are kept; environment variables are added by name, volume mounts by
	// path, and missing fields are set. A hostPort requires exactly one name in
	// Names.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Template runtime.RawExtension `json:"template"`
}

// SidecarShare copies settings of the application's containers to a container of
// the template.
//
// +kubebuilder:validation:XValidation:rule="(has(self.volumeMounts) && self.volumeMounts) || (has(self.volumeDevices) && self.volumeDevices) || (has(self.env) && size(self.env) > 0)",message="nothing is shared: volumeMounts, volumeDevices or env must say something"
// +kubebuilder:validation:XValidation:rule="!has(self.readOnly) || !self.readOnly || (has(self.volumeMounts) && self.volumeMounts)",message="says something about volumeMounts, and these are not shared",fieldPath=".readOnly"
type SidecarShare struct {
	// Container is the name of the container in the template.
	// +kubebuilder:validation:MaxLength=253
	Container string `json:"container"`
	// From are the names of the application's containers. Empty selects all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	From []string `json:"from,omitempty"`
	// VolumeMounts copies every volume mount, including subPath. For a mount with a
	// subPathExpr it also copies the environment variables that the expression
	// refers to, directly or indirectly; one that may come from envFrom is a
	// conflict. Bidirectional propagation becomes
	// HostToContainer unless the container is privileged. The service account token
	// is not copied, because the API server gives one to every container.
	// +optional
	VolumeMounts bool `json:"volumeMounts,omitempty"`
	// VolumeDevices copies every raw block device.
	// +optional
	VolumeDevices bool `json:"volumeDevices,omitempty"`
	// ReadOnly makes the copied mounts read-only.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
	// Env are the names of environment variables to copy; "*" means all. Variables
	// of the sidecar take precedence. The variables to which a copied value refers, as
	// $(NAME), are copied too; a different value of the sidecar, or one that may come
	// from envFrom, is a conflict.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=1024
	Env []string `json:"env,omitempty"`
}
