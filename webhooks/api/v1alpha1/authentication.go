package v1alpha1

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AccessToken is an opaque bearer token, known by its id and the hash of its
// text; the text itself is stored nowhere. The object's name is the token's
// id, and its creationTimestamp is when it was issued. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghat,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="gatehouse.dev/schema-revision=1"
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.user.username`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Last used",type=date,JSONPath=`.status.lastUsed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",message="the name is the token's id: 1 to 63 lower-case letters, digits and \"-\""
type AccessToken struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec never changes: a token that is to prove something else is another token.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an access token does not change: delete it and issue another"
	Spec AccessTokenSpec `json:"spec"`

	// Status is what Gatehouse says of the object in a cluster. In a directory it is
	// not looked at.
	// +optional
	Status AccessTokenStatus `json:"status,omitzero"`
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
//
// The rule about sha256 is one of the whole, because the API server repeats the value
// that a rule of its own refuses, and what stands there by mistake may be the secret.
//
// +kubebuilder:validation:XValidation:rule="self.sha256.matches('^[0-9a-f]{64}$')",fieldPath=".sha256",message="must be the SHA-256 of the token's text, 64 lower-case hexadecimal digits, as gatehouse token issue writes it: if this is the token itself, it is known to others now, so issue a new one"
type AccessTokenSpec struct {
	// SHA256 is the hash of the whole token text, in 64 lower-case hexadecimal
	// digits.
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256"`
	// User is the identity that the token proves. Names, groups and extra keys
	// that Kubernetes reserves for itself are refused.
	// +kubebuilder:validation:XValidation:rule="has(self.username) && size(self.username) > 0",message="is required",fieldPath=".username",reason=FieldValueRequired
	User authenticationv1.UserInfo `json:"user"`
	// ExpiresAt is the moment from which the token is refused.
	ExpiresAt metav1.Time `json:"expiresAt"`
	// Audiences are the audiences that the token is good for. Without any, it
	// is good for the API server's own audiences and no others.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Audiences []string `json:"audiences,omitempty"`
}

// TokenRevocation ends what was given to a user before a moment: every login
// token, every JWT and every access token of the user that was issued before it
// is refused, whoever issued it. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghtr,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="gatehouse.dev/schema-revision=1"
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.user`
// +kubebuilder:printcolumn:name="Issued before",type=string,JSONPath=`.spec.issuedBefore`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type TokenRevocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says whose tokens are refused.
	Spec TokenRevocationSpec `json:"spec"`

	// Status is what Gatehouse says of the object in a cluster. In a directory it is
	// not looked at.
	// +optional
	Status TokenRevocationStatus `json:"status,omitzero"`
}

// TokenRevocationList is a list of TokenRevocation.
//
// +kubebuilder:object:root=true
type TokenRevocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TokenRevocation `json:"items"`
}

// TokenRevocationSpec says whose tokens are refused.
type TokenRevocationSpec struct {
	// User is the user name as the API server sees it, prefixes included.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	User string `json:"user"`
	// IssuedBefore is the moment before which a token must have been issued to
	// be refused. A token that does not say when it was issued is refused too.
	IssuedBefore metav1.Time `json:"issuedBefore"`
	// Reason is for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// AuthenticationConfiguration is what Gatehouse's authentication has beside the
// JWT issuers, which are in upstream's document of the same kind
// (apiserver.config.k8s.io). It is a document of the directory, one at most, and
// not a resource of the cluster. Paths of files in it are relative to the
// document's own directory.
type AuthenticationConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// JWT is about the issuers of upstream's document.
	JWT JWTConfiguration `json:"jwt,omitzero"`
	// Directories are LDAP and Active Directory services whose passwords the
	// login endpoint takes.
	Directories []Directory `json:"directories,omitempty"`
	// Login is about the tokens that the login endpoint issues. It is required if
	// there are directories.
	Login *LoginConfiguration `json:"login,omitempty"`
	// Guard adds to what the identity guard does by itself.
	Guard GuardConfiguration `json:"guard,omitzero"`
}

// JWTConfiguration is about the keys of JWT issuers.
type JWTConfiguration struct {
	// KeyRefreshInterval is how often the keys of an issuer are fetched anew, so
	// that one that was withdrawn is refused after that time. The default is 5m,
	// the least is 30s.
	KeyRefreshInterval *metav1.Duration `json:"keyRefreshInterval,omitempty"`
	// MaxKeyAge is for how long keys are used that could not be fetched anew. The
	// default is 24h.
	MaxKeyAge *metav1.Duration `json:"maxKeyAge,omitempty"`
	// Issuers are about single issuers.
	Issuers []JWTIssuer `json:"issuers,omitempty"`
}

// JWTIssuer adds to an issuer of upstream's document.
type JWTIssuer struct {
	// URL is the issuer's url in upstream's document.
	URL string `json:"url"`
	// KeysFile is the path of a JSON Web Key Set (RFC 7517). With it, the
	// issuer is never asked.
	KeysFile string `json:"keysFile,omitempty"`
}

// Directory is an LDAP or Active Directory service.
type Directory struct {
	// Name is what people and log lines call it: a DNS-1123 label.
	Name string `json:"name"`
	// Servers are URLs, ldaps://HOST[:PORT] or ldap://HOST[:PORT]; the latter
	// speak StartTLS before anything else. They are tried in this order.
	Servers []string `json:"servers"`
	// CertificateAuthority is the CAs of the servers' certificates, in PEM. The
	// default is those of the system.
	CertificateAuthority string `json:"certificateAuthority,omitempty"`
	// BindDN is the account that searches. Without it, the search is anonymous.
	BindDN string `json:"bindDN,omitempty"`
	// BindPasswordFile is the path of a file with its password. White space at
	// the end is not part of it.
	BindPasswordFile string `json:"bindPasswordFile,omitempty"`
	// UserSearch finds the entry of a user.
	UserSearch UserSearch `json:"userSearch"`
	// GroupSearch finds the groups of a user. Without it a user has none.
	GroupSearch *GroupSearch `json:"groupSearch,omitempty"`
	// UsernamePrefix and GroupsPrefix go before user names and groups.
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	GroupsPrefix   string `json:"groupsPrefix,omitempty"`
	// Timeout bounds one login with all it asks of the directory. The default is
	// 5s.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// MaxConnections bounds the connections that are open at one time. The
	// default is 8.
	MaxConnections int `json:"maxConnections,omitempty"`
}

// UserSearch finds the entry of a user. Exactly one entry must be found.
type UserSearch struct {
	// BaseDN is below what is searched.
	BaseDN string `json:"baseDN"`
	// Filter is an LDAP filter (RFC 4515) in which {} stands for the escaped
	// name that the user gave: "(&(objectClass=person)(uid={}))".
	Filter string `json:"filter"`
	// UsernameAttribute gives the user name; what the user typed never does. The
	// attribute must have exactly one value.
	UsernameAttribute string `json:"usernameAttribute"`
	// UIDAttribute gives the uid. A binary value, such as objectGUID, becomes
	// hexadecimal digits. Without it there is none.
	UIDAttribute string `json:"uidAttribute,omitempty"`
	// Extra are further attributes for the user's extra.
	Extra []ExtraAttribute `json:"extra,omitempty"`
}

// ExtraAttribute gives a key of extra its values.
type ExtraAttribute struct {
	// Key is the lower-case key, with a domain: "example.org/department".
	Key string `json:"key"`
	// Attribute is the attribute of the user's entry; each value is one.
	Attribute string `json:"attribute"`
}

// GroupNesting says whether members of a group in a group are members.
type GroupNesting string

// The values of GroupNesting.
const (
	// NestingNone is the default: only the groups that name the user.
	NestingNone GroupNesting = "None"
	// NestingRecursive searches the groups of the groups, level by level.
	NestingRecursive GroupNesting = "Recursive"
	// NestingActiveDirectory lets the server do it, by the matching rule
	// LDAP_MATCHING_RULE_IN_CHAIN, which only Active Directory and Samba have.
	NestingActiveDirectory GroupNesting = "ActiveDirectory"
)

// GroupSearch finds the groups of a user.
type GroupSearch struct {
	// BaseDN is below what is searched.
	BaseDN string `json:"baseDN"`
	// Filter is an LDAP filter in which {} stands for the escaped value of
	// MemberValue: "(&(objectClass=groupOfNames)(member={}))". With nesting
	// ActiveDirectory it is "(member:1.2.840.113556.1.4.1941:={})".
	Filter string `json:"filter"`
	// MemberValue is the attribute of the user's entry (and of a group's, with
	// nesting) by which groups name their members. The default is the entry's
	// DN; posixGroup has "uid".
	MemberValue string `json:"memberValue,omitempty"`
	// NameAttribute gives the name of the group. The default is "cn".
	NameAttribute string `json:"nameAttribute,omitempty"`
	// Nesting says whether members of a group in a group are members.
	Nesting GroupNesting `json:"nesting,omitempty"`
	// MaxGroups bounds the groups of one user. A user with more cannot log in,
	// because which ones were left out would be chance. The default is 500.
	MaxGroups int `json:"maxGroups,omitempty"`
}

// LoginConfiguration is about the tokens that the login endpoint issues.
type LoginConfiguration struct {
	// Keys sign the tokens. The first signs; all of them verify. All replicas
	// must have the same.
	Keys []LoginKey `json:"keys"`
	// TokenTTL is how long a token is good for: by then the directory is asked
	// again whether the user is still there, and for the groups. The default is
	// 15m, the most 24h.
	TokenTTL *metav1.Duration `json:"tokenTTL,omitempty"`
	// SessionTTL is how long tokens are renewed without a password. The default
	// is 10h, the most 720h.
	SessionTTL *metav1.Duration `json:"sessionTTL,omitempty"`
	// Audiences are the audiences that the tokens are good for. Without any, they
	// are good for the API server's own.
	Audiences []string `json:"audiences,omitempty"`
}

// LoginKey is a key for login tokens.
type LoginKey struct {
	// Name is a DNS-1123 label. It is part of every token.
	Name string `json:"name"`
	// File is the path of a file with the key: at least 32 random bytes in base64,
	// as 'gatehouse token key' makes them.
	File string `json:"file"`
}

// GuardConfiguration adds to what the identity guard does by itself. A source of
// identities is "access-tokens", the name of a directory or the URL of an
// issuer.
type GuardConfiguration struct {
	// Prefixes are what user names and groups of a source must begin with.
	Prefixes []RequiredPrefix `json:"prefixes,omitempty"`
	// AllowedGroups are reserved groups that the sources may give all the same.
	AllowedGroups []AllowedGroup `json:"allowedGroups,omitempty"`
}

// RequiredPrefix is what the identities of a source must begin with.
type RequiredPrefix struct {
	// Source is "access-tokens", the name of a directory or the URL of an issuer.
	Source string `json:"source"`
	// Username and Groups are the prefixes; an empty one asks nothing.
	Username string `json:"username,omitempty"`
	Groups   string `json:"groups,omitempty"`
}

// AllowedGroup is a reserved group that some sources may give.
type AllowedGroup struct {
	// Name is the whole name, "system:masters".
	Name string `json:"name"`
	// Sources are those that may give it; there must be one.
	Sources []string `json:"sources"`
}

// AccessTokensSource is the source of the identities of access tokens.
const AccessTokensSource = "access-tokens"
