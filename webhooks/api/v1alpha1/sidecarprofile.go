package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Injection says what happens to a pod that matches a profile and about which
// neither the pod nor its namespace says anything.
type Injection string

const (
	// OptIn injects only where the pod or its namespace asks with
	// InjectAnnotation.
	OptIn Injection = "OptIn"
	// OptOut injects into every matching pod but those that decline, or whose
	// namespace does, with InjectAnnotation.
	OptOut Injection = "OptOut"
)

// SidecarProfile describes what is added to pods, and which pods get it. It is
// cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghsp,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="gatehouse.dev/schema-revision=1"
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`
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

	// Spec is what is wanted.
	Spec SidecarProfileSpec `json:"spec"`

	// Status is what Gatehouse says of the object in a cluster. In a directory it is
	// not looked at.
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

// SidecarProfileSpec is what a SidecarProfile wants.
type SidecarProfileSpec struct {
	// Match selects the pods that the profile is about. An empty match selects
	// every pod.
	// +optional
	Match SidecarMatch `json:"match,omitzero"`
	// Injection says what happens without a word from the pod or its
	// namespace. The default is OptIn.
	// +optional
	// +kubebuilder:default=OptIn
	// +kubebuilder:validation:Enum=OptIn;OptOut
	Injection Injection `json:"injection,omitempty"`
	// Rollout applies the profile to a share of the workloads that it selects.
	// +optional
	Rollout *SidecarRollout `json:"rollout,omitempty"`
	// Placement says where the profile's containers stand among those of the
	// pod and of other profiles.
	// +optional
	Placement SidecarPlacement `json:"placement,omitzero"`
	// HostNetwork says what happens to a pod with hostNetwork: true, where the
	// ports of a sidecar are the node's: Skip (default) or Inject.
	// +optional
	// +kubebuilder:default=Skip
	// +kubebuilder:validation:Enum=Skip;Inject
	HostNetwork SpecialPodAction `json:"hostNetwork,omitempty"`
	// PodsThatEnd says what happens to a pod that must end (restartPolicy Never
	// or OnFailure) if the profile has a container that would keep it from
	// ending, because it is not a native sidecar: Skip (default), Refuse or
	// Inject.
	// +optional
	// +kubebuilder:default=Skip
	// +kubebuilder:validation:Enum=Skip;Refuse;Inject
	PodsThatEnd SpecialPodAction `json:"podsThatEnd,omitempty"`
	// OnConflict says what happens where the pod has something else in a place
	// that the profile fills: a port, a mount path, a volume's name, a label, a
	// field. The default is Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	// +kubebuilder:validation:Enum=Refuse;Skip;Keep
	OnConflict ConflictAction `json:"onConflict,omitempty"`
	// OnSameName says what happens to a container of the pod that has the name
	// of one in the template. The default is Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	// +kubebuilder:validation:Enum=Refuse;Keep;Replace
	OnSameName SameNameAction `json:"onSameName,omitempty"`
	// DistinctUsers are containers of the template whose runAsUser no other
	// container of the pod may have: traffic redirection, for one, tells a
	// proxy from the application by its user.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	DistinctUsers []string `json:"distinctUsers,omitempty"`
	// Parameters are what a pod or a namespace may set.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Parameters []SidecarParameter `json:"parameters,omitempty"`
	// Presets are sets of values that expressions may read when a pod is
	// created, kept apart from the profile.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Presets []SidecarPreset `json:"presets,omitempty"`
	// Template is the partial pod that is added.
	// +optional
	Template SidecarTemplate `json:"template,omitzero"`
	// AppContainers are additions to the pod's own containers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	AppContainers []AppContainerAdditions `json:"appContainers,omitempty"`
	// Share gives what the pod's own containers mount and have in their
	// environment to containers of the template.
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
	// MatchConditions are CEL expressions over pod, namespace and presets, all of which
	// must be true. As in a webhook configuration, one that is false decides,
	// even if another cannot be evaluated.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
}

// SidecarRollout applies a profile to a share of workloads. Which ones depends
// on the namespace and name of the workload that owns the pod and on nothing
// else: it is the same for all pods of a workload, in every replica, in a dry
// run and offline, and a workload that is in at one percentage is in at every
// higher one.
type SidecarRollout struct {
	// Percent is the share, from 0 to 100.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent"`
	// Replaces names the profile whose place this one takes in its share; the
	// others keep that profile. It answers to that profile's name in the
	// annotations of pods and namespaces too. Without it, pods outside the
	// share get nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Replaces string `json:"replaces,omitempty"`
}

// Position is a place relative to the pod's own containers.
type Position string

const (
	// First is in front of the pod's own.
	First Position = "First"
	// Last is behind the pod's own.
	Last Position = "Last"
)

// SidecarPlacement says where the profile's containers stand. Profiles between
// which nothing is declared stand in the order of their names.
type SidecarPlacement struct {
	// InitContainers is the place of init containers, native sidecars among
	// them. The default is First: a native sidecar then serves the pod's init
	// containers too.
	// +optional
	// +kubebuilder:default=First
	// +kubebuilder:validation:Enum=First;Last
	InitContainers Position `json:"initContainers,omitempty"`
	// Containers is the place of containers. The default is Last.
	// +optional
	// +kubebuilder:default=Last
	// +kubebuilder:validation:Enum=First;Last
	Containers Position `json:"containers,omitempty"`
	// Before names profiles whose containers stand behind this one's.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Before []string `json:"before,omitempty"`
	// After names profiles whose containers stand in front of this one's.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	After []string `json:"after,omitempty"`
}

// SpecialPodAction says what happens to a pod that a sidecar may not suit.
type SpecialPodAction string

const (
	// SkipPod leaves the profile out, with a reason.
	SkipPod SpecialPodAction = "Skip"
	// RefusePod refuses the pod.
	RefusePod SpecialPodAction = "Refuse"
	// InjectPod applies the profile as to any other pod.
	InjectPod SpecialPodAction = "Inject"
)

// ConflictAction says what happens on a conflict.
type ConflictAction string

const (
	// RefuseConflict refuses the pod, with every conflict at once.
	RefuseConflict ConflictAction = "Refuse"
	// SkipConflict leaves the whole profile out, with a warning.
	SkipConflict ConflictAction = "Skip"
	// KeepConflict keeps what the pod has and leaves out what conflicts with
	// it, with a warning.
	KeepConflict ConflictAction = "Keep"
)

// SameNameAction says what happens to a container of the pod that has the name
// of one in the template.
type SameNameAction string

const (
	// RefuseSameName refuses the pod.
	RefuseSameName SameNameAction = "Refuse"
	// KeepSameName keeps every field of the pod's container, and adds those of
	// the template that it lacks: so a pod's author can override a part of a
	// sidecar.
	KeepSameName SameNameAction = "Keep"
	// ReplaceSameName puts the template's container in the place of the pod's.
	// The status annotation keeps the pod's own.
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
	// ListParameter is a list of texts, written "a,b,c".
	ListParameter ParameterType = "list"
)

// SidecarParameter is something that a pod or a namespace may set with the
// annotation <profile>.sidecar.gatehouse.dev/<parameter>. The pod's annotation
// beats the namespace's, and that the default, each parameter for itself.
// Expressions read it as params.<name>.
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
	// Description says what it is for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// Type is one of string, integer, boolean, quantity, duration, port, enum
	// and list.
	// +kubebuilder:validation:Enum=string;integer;boolean;quantity;duration;port;enum;list
	Type ParameterType `json:"type"`
	// Default holds where neither the pod nor the namespace says anything.
	// Without one the parameter must be given.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Default *ParameterValue `json:"default,omitempty"`
	// Minimum is the smallest integer, port, quantity or duration allowed.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Minimum *ParameterValue `json:"minimum,omitempty"`
	// Maximum is the largest integer, port, quantity or duration allowed.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Maximum *ParameterValue `json:"maximum,omitempty"`
	// Pattern is a regular expression (RE2) that the whole of a string, or each
	// text of a list, must match.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Pattern string `json:"pattern,omitempty"`
	// MaxLength is the largest number of characters of a string, or of each
	// text of a list. The default is 1024.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=262144
	MaxLength *int32 `json:"maxLength,omitempty"`
	// MaxItems is the largest number of texts in a list. The default is 64.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=262144
	MaxItems *int32 `json:"maxItems,omitempty"`
	// Enum are the values allowed: required for the type enum, possible for
	// string and for the texts of a list.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Enum []string `json:"enum,omitempty"`
	// OnInvalid says what happens to a pod for which the value is none of
	// those allowed, or missing: Refuse (default), or Skip, which leaves the
	// profile out with a warning.
	// +optional
	// +kubebuilder:default=Refuse
	// +kubebuilder:validation:Enum=Refuse;Skip
	OnInvalid InvalidAction `json:"onInvalid,omitempty"`
}

// InvalidAction says what happens to a pod whose parameter is invalid.
type InvalidAction string

const (
	// RefuseInvalid refuses the pod.
	RefuseInvalid InvalidAction = "Refuse"
	// SkipInvalid leaves the profile out, with a warning.
	SkipInvalid InvalidAction = "Skip"
)

// SidecarPreset is a set of values that expressions read as
// presets.<name>["key"].
type SidecarPreset struct {
	// Name is a letter followed by letters and digits.
	// +kubebuilder:validation:Pattern=`^[a-z][A-Za-z0-9]*$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// ConfigMap holds the values in its data.
	ConfigMap ObjectReference `json:"configMap"`
}

// ObjectReference names an object in a namespace.
type ObjectReference struct {
	// Namespace is the namespace that the object is in.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
	// Name is the object's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// SidecarTemplate is a partial pod. A text in it may hold CEL expressions over
// pod, namespace, params and presets, as ${…}; $${ stands for ${. Names of
// containers, volumes and ports, and the names of fields, are literal.
type SidecarTemplate struct {
	// Metadata holds labels and annotations.
	// +optional
	Metadata SidecarTemplateMetadata `json:"metadata,omitzero"`
	// Spec is a partial pod spec. A container whose name the pod does not have
	// is added; every other field is merged with what the pod has.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Spec runtime.RawExtension `json:"spec,omitzero"`
}

// SidecarTemplateMetadata is what a profile may add to a pod's metadata.
type SidecarTemplateMetadata struct {
	// Labels are added to the pod's.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are added to the pod's.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// AppContainerAdditions are additions to some of the pod's own containers: those
// that no profile has added.
type AppContainerAdditions struct {
	// Names are the containers. Nothing stands for all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`
	// Except are containers that get nothing.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Except []string `json:"except,omitempty"`
	// InitContainers adds to the pod's own init containers too, native sidecars
	// among them.
	// +optional
	InitContainers bool `json:"initContainers,omitempty"`
	// Template is a partial container, without a name and a restartPolicy. What
	// the container has stays; environment variables are added by name, volume
	// mounts by path, and fields that it lacks are set. A hostPort needs exactly
	// one name in Names.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Template runtime.RawExtension `json:"template"`
}

// SidecarShare gives a container of the template what the pod's own containers
// have.
//
// +kubebuilder:validation:XValidation:rule="(has(self.volumeMounts) && self.volumeMounts) || (has(self.volumeDevices) && self.volumeDevices) || (has(self.env) && size(self.env) > 0)",message="nothing is shared: volumeMounts, volumeDevices or env must say something"
// +kubebuilder:validation:XValidation:rule="!has(self.readOnly) || !self.readOnly || (has(self.volumeMounts) && self.volumeMounts)",message="says something about volumeMounts, and these are not shared",fieldPath=".readOnly"
type SidecarShare struct {
	// Container is the container of the template.
	// +kubebuilder:validation:MaxLength=253
	Container string `json:"container"`
	// From are the pod's own containers. Nothing stands for all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	From []string `json:"from,omitempty"`
	// VolumeMounts shares every volume mount, with subPath, and of one with a
	// subPathExpr the environment variables that it names, and those that these
	// name. Bidirectional propagation becomes HostToContainer unless the
	// container is privileged. The token of the service account is not shared:
	// the API server gives every container one.
	// +optional
	VolumeMounts bool `json:"volumeMounts,omitempty"`
	// VolumeDevices shares every raw block device.
	// +optional
	VolumeDevices bool `json:"volumeDevices,omitempty"`
	// ReadOnly makes shared mounts read-only.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
	// Env are the names of environment variables to share; "*" is all. The
	// sidecar's own win.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=1024
	Env []string `json:"env,omitempty"`
}
