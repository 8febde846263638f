package v1alpha1

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AccessToken is an opaque bearer token. It contains the id and the hash of the
// token; the token itself is not stored. The name of the object is the id, and
// creationTimestamp is the time of issue. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghat,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.user.username`
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.spec.scope['name','rules']`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Last used",type=date,JSONPath=`.status.lastUsed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",message="the name is the token's id: 1 to 63 lower-case letters, digits and \"-\""
type AccessToken struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an access token does not change: delete it and issue another"
	Spec AccessTokenSpec `json:"spec"`

	// Status is reported by Gatehouse in a cluster. It is ignored in a directory.
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

// AccessTokenSpec is the identity and the expiry of a token.
//
// The rule for sha256 belongs to the whole spec, because the API server repeats the
// value of a field that violates a rule, and that value may be the token.
//
// +kubebuilder:validation:XValidation:rule="self.sha256.matches('^[0-9a-f]{64}$')",fieldPath=".sha256",message="must be the SHA-256 of the token's text, 64 lower-case hexadecimal digits, as gatehouse token issue writes it: if this is the token itself, it is known to others now, so issue a new one"
type AccessTokenSpec struct {
	// SHA256 is the hash of the token, in 64 lower-case hexadecimal digits.
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256"`
	// User is the identity of the token. Names, groups and extra keys that
	// Kubernetes reserves are rejected.
	// +kubebuilder:validation:XValidation:rule="has(self.username) && size(self.username) > 0",message="is required",fieldPath=".username",reason=FieldValueRequired
	User authenticationv1.UserInfo `json:"user"`
	// ExpiresAt is the time from which the token is rejected.
	ExpiresAt metav1.Time `json:"expiresAt"`
	// Audiences are the audiences of the token. Without any, the token is valid for
	// the API server's audiences only.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Audiences []string `json:"audiences,omitempty"`
	// Scope bounds what the token may be used for, below the rights of its user. Without
	// it, the token may do what its user may do. A token with a scope is rejected unless
	// the API server is known to ask /authorize.
	// +optional
	Scope *TokenScope `json:"scope,omitempty"`
}

// TokenRevocation rejects all tokens of a user that were issued before a time: login
// tokens, JWTs and access tokens of any issuer. Or it rejects the JWTs of an issuer with an
// id, or of a session. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghtr,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.user`
// +kubebuilder:printcolumn:name="Issued before",type=string,JSONPath=`.spec.issuedBefore`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type TokenRevocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines which tokens are rejected.
	Spec TokenRevocationSpec `json:"spec"`

	// Status is reported by Gatehouse in a cluster. It is ignored in a directory.
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

// TokenRevocationSpec defines which tokens are rejected: exactly one of user, tokenID,
// sessionID and subject is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.user), has(self.tokenID), has(self.sessionID), has(self.subject)].filter(x, x).size() == 1",message="exactly one of user, tokenID, sessionID and subject is required"
// +kubebuilder:validation:XValidation:rule="has(self.user) != has(self.issuer)",message="issuer is required with tokenID, sessionID or subject, and does not go with user"
// +kubebuilder:validation:XValidation:rule="(has(self.user) || has(self.subject)) == has(self.issuedBefore)",message="issuedBefore is required with user or subject, and goes with nothing else"
type TokenRevocationSpec struct {
	// User is the user name as the API server sees it, prefixes included.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	User string `json:"user,omitempty"`
	// IssuedBefore is the time before which tokens must have been issued to be
	// rejected, with user or subject. Tokens without a time of issue are rejected too.
	// +optional
	IssuedBefore metav1.Time `json:"issuedBefore,omitzero"`
	// Issuer is the URL of the issuer of JWTs, with tokenID, sessionID or subject.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Issuer string `json:"issuer,omitempty"`
	// TokenID is the claim jti of a JWT.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	TokenID string `json:"tokenID,omitempty"`
	// SessionID is the claim sid of JWTs, which all tokens of a session have.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	SessionID string `json:"sessionID,omitempty"`
	// Subject is the claim sub of JWTs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Subject string `json:"subject,omitempty"`
	// Reason is not interpreted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// AuthenticationConfiguration configures authentication beside the JWT issuers,
// which are in upstream's document of the same kind (apiserver.config.k8s.io). It
// is a document of the directory, at most one, and not a resource of the cluster.
// Paths of files are relative to the directory of the document.
type AuthenticationConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// JWT configures the keys of the issuers in upstream's document.
	JWT JWTConfiguration `json:"jwt,omitzero"`
	// Directories are LDAP and Active Directory services that verify passwords for
	// the login endpoint.
	Directories []Directory `json:"directories,omitempty"`
	// Login configures the tokens that the login endpoint issues. It is required if
	// there are directories.
	Login *LoginConfiguration `json:"login,omitempty"`
	// Guard extends the identity guard.
	Guard GuardConfiguration `json:"guard,omitzero"`
	// Scopes are named scopes, beside view and edit.
	Scopes []NamedScope `json:"scopes,omitempty"`
	// Grants bounds Grants.
	Grants GrantsConfiguration `json:"grants,omitzero"`
}

// GrantsConfiguration bounds Grants.
type GrantsConfiguration struct {
	// MaxDuration is the longest time from the start of a Grant to its end. A longer
	// Grant has errors and gives nothing. A Grant of the cluster starts when it is
	// created or at its notBefore, whichever is later, so that a later expiresAt alone
	// does not get past this. Who may grant the groups can move notBefore too, or create
	// another Grant. The default is no bound, the minimum 1m, the maximum 8760h.
	MaxDuration *metav1.Duration `json:"maxDuration,omitempty"`
	// OwnGrants is whether a user may be the subject of a Grant that the same user made.
	// It compares the names: a person with two user names can grant from one to the other.
	OwnGrants OwnGrants `json:"ownGrants,omitempty"`
	// Retain is how long a Grant of the cluster is kept after its end. Then Gatehouse
	// deletes it. The default is 168h, the minimum 10m, the maximum 8760h.
	Retain *metav1.Duration `json:"retain,omitempty"`
}

// OwnGrants is whether users may grant to themselves.
type OwnGrants string

// The values of OwnGrants.
const (
	// OwnGrantsAllow is the default.
	OwnGrantsAllow OwnGrants = "Allow"
	// OwnGrantsDeny makes a Grant invalid whose grantedBy is its subject.
	OwnGrantsDeny OwnGrants = "Deny"
)

// JWTConfiguration configures the keys of JWT issuers.
type JWTConfiguration struct {
	// KeyRefreshInterval is how often the keys of an issuer are fetched. A
	// withdrawn key is rejected after this time. The default is 5m, the minimum
	// 30s, the maximum 24h.
	KeyRefreshInterval *metav1.Duration `json:"keyRefreshInterval,omitempty"`
	// MaxKeyAge is how long keys are used that cannot be refreshed. The default is
	// 24h, the maximum 720h. It must not be less than keyRefreshInterval.
	MaxKeyAge *metav1.Duration `json:"maxKeyAge,omitempty"`
	// Issuers configure single issuers.
	Issuers []JWTIssuer `json:"issuers,omitempty"`
}

// JWTIssuer configures an issuer of upstream's document.
type JWTIssuer struct {
	// URL is the issuer's url in upstream's document.
	URL string `json:"url"`
	// KeysFile is the path of a JSON Web Key Set (RFC 7517). With it, keys are
	// never fetched.
	KeysFile string `json:"keysFile,omitempty"`
	// GroupSources give groups that the tokens of the issuer do not hold. Each of
	// them is asked, and the user gets the groups of all, beside those of the token.
	GroupSources []GroupSource `json:"groupSources,omitempty"`
}

// GroupSource is a place outside the token that knows groups of its user. Exactly one
// of UserInfo, LDAP, Graph and HTTP is set.
type GroupSource struct {
	// Name identifies the source in logs, metrics and commands. It is a DNS-1123
	// label.
	Name string `json:"name"`
	// UserInfo asks the UserInfo endpoint of the issuer.
	UserInfo *UserInfoGroups `json:"userInfo,omitempty"`
	// LDAP asks a directory.
	LDAP *LDAPGroups `json:"ldap,omitempty"`
	// Graph asks Microsoft Graph.
	Graph *GraphGroups `json:"graph,omitempty"`
	// HTTP asks a service of your own.
	HTTP *HTTPGroups `json:"http,omitempty"`
	// Ask is when the source is asked.
	Ask GroupAsk `json:"ask,omitempty"`
	// User is a CEL expression over claims that results in the user to look up: for
	// ldap the name that the directory's userSearch finds. The default is "claims.sub",
	// for graph "claims.oid". A UserInfo endpoint knows the user by the token.
	User string `json:"user,omitempty"`
	// Groups is a CEL expression over the JSON answer of userInfo or http that results
	// in a string or a list of strings: "answer.groups", the default.
	Groups string `json:"groups,omitempty"`
	// CertificateAuthority has the CAs of the service, in PEM. The default is the
	// system's CAs. A directory has its own.
	CertificateAuthority string `json:"certificateAuthority,omitempty"`
	// GroupsPrefix is added to groups. The default for ldap is the directory's.
	GroupsPrefix *string `json:"groupsPrefix,omitempty"`
	// RequiredPrefix is what each group of the source must begin with, GroupsPrefix
	// included. Otherwise the token is rejected.
	RequiredPrefix string `json:"requiredPrefix,omitempty"`
	// MaxGroups is the maximum number of groups that the source may give a user. More
	// are no answer. The default is 500, the maximum 10000.
	MaxGroups int `json:"maxGroups,omitempty"`
	// OnUnknown is what happens if the source has no answer, and none is cached.
	OnUnknown OnUnknownGroups `json:"onUnknown,omitempty"`
	// Timeout is the maximum duration of one look-up. The default is 3s, the minimum
	// 100ms. The timeouts of all sources of an issuer together are at most 7s.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// MaxRequests is the maximum number of look-ups at a time. The default is 128, the
	// maximum 1000.
	MaxRequests int `json:"maxRequests,omitempty"`
	// CacheTTL is for how long an answer is used, 5m by default, from 10s to 1h. OutageTTL is for
	// how long it is used while the source does not answer, 1h by default, at most 24h.
	CacheTTL  *metav1.Duration `json:"cacheTTL,omitempty"`
	OutageTTL *metav1.Duration `json:"outageTTL,omitempty"`
}

// GroupAsk is when a group source is asked.
type GroupAsk string

// The values of GroupAsk.
const (
	// AskAlways is the default: for every token.
	AskAlways GroupAsk = "Always"
	// AskOnOverage asks only for tokens that say that their groups were left out: by a
	// distributed claim "groups", or by the claim "hasgroups".
	AskOnOverage GroupAsk = "OnOverage"
)

// OnUnknownGroups is what happens if a group source has no answer.
type OnUnknownGroups string

// The values of OnUnknownGroups.
const (
	// OnUnknownFail is the default: the token cannot be decided on.
	OnUnknownFail OnUnknownGroups = "Fail"
	// OnUnknownUseToken logs the user in without the groups of the source.
	OnUnknownUseToken OnUnknownGroups = "UseToken"
)

// UserInfoGroups asks the UserInfo endpoint of the issuer (OpenID Connect Core, 5.3)
// with the token that is reviewed.
type UserInfoGroups struct {
	// URL is the endpoint. It is required, because a discovery document may not choose
	// who gets tokens.
	URL string `json:"url"`
}

// LDAPGroups asks a directory of this configuration for the groups of an entry.
type LDAPGroups struct {
	// Directory is the name of an entry of directories, with a groupSearch.
	Directory string `json:"directory"`
}

// GraphGroups asks Microsoft Graph for the transitive groups of a user, as an
// application with the permission GroupMember.Read.All.
type GraphGroups struct {
	// TenantID and ClientID identify the application.
	TenantID string `json:"tenantID"`
	ClientID string `json:"clientID"`
	// ClientSecretFile is the path of a file with the secret of the application.
	ClientSecretFile string `json:"clientSecretFile"`
	// NameProperty is the property of a group that is its name: "id", the default, or
	// "displayName", which several groups can have and their owners can change.
	NameProperty string `json:"nameProperty,omitempty"`
	// TokenURL and URL are those of a national cloud. The defaults are
	// https://login.microsoftonline.com/TENANT/oauth2/v2.0/token and
	// https://graph.microsoft.com/v1.0.
	TokenURL string `json:"tokenURL,omitempty"`
	URL      string `json:"url,omitempty"`
}

// HTTPGroups asks a service of your own. It gets the claims iss and sub of the token,
// and the user: as query parameters of a GET, or as a JSON object of a POST, named
// issuer, subject and user. Status 404 or 204 means that the user has no groups.
type HTTPGroups struct {
	// URL is the service.
	URL string `json:"url"`
	// Method is GET, the default, or POST.
	Method string `json:"method,omitempty"`
	// ClientCertificateFile and ClientKeyFile are the paths of a client certificate and
	// its key, in PEM.
	ClientCertificateFile string `json:"clientCertificateFile,omitempty"`
	ClientKeyFile         string `json:"clientKeyFile,omitempty"`
	// TokenFile is the path of a file with a bearer token.
	TokenFile string `json:"tokenFile,omitempty"`
}

// Directory is an LDAP or Active Directory service.
type Directory struct {
	// Name identifies the directory in logs and commands. It is a DNS-1123 label.
	Name string `json:"name"`
	// Servers are URLs, ldaps://HOST[:PORT], or ldap://HOST[:PORT] with StartTLS.
	// They are tried in this order.
	Servers []string `json:"servers"`
	// CertificateAuthority has the CAs of the servers' certificates, in PEM. The
	// default is the system's CAs.
	CertificateAuthority string `json:"certificateAuthority,omitempty"`
	// BindDN is the account for searches. Without it, searches are anonymous.
	BindDN string `json:"bindDN,omitempty"`
	// BindPasswordFile is the path of a file with the password of BindDN. Trailing
	// white space is ignored.
	BindPasswordFile string `json:"bindPasswordFile,omitempty"`
	// UserSearch finds the entry of a user.
	UserSearch UserSearch `json:"userSearch"`
	// GroupSearch finds the groups of a user. Without it, users have no groups.
	GroupSearch *GroupSearch `json:"groupSearch,omitempty"`
	// UsernamePrefix and GroupsPrefix are added to user names and groups.
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	GroupsPrefix   string `json:"groupsPrefix,omitempty"`
	// Timeout is the maximum duration of one login with all its queries. The
	// default is 5s, the minimum 100ms, the maximum 1m.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// MaxConnections is the maximum number of open connections of each replica. The
	// default is 8, the maximum 1000.
	MaxConnections int `json:"maxConnections,omitempty"`
}

// UserSearch finds the entry of a user. Exactly one entry must be found.
type UserSearch struct {
	// BaseDN is the base of the search.
	BaseDN string `json:"baseDN"`
	// Filter is an LDAP filter (RFC 4515). {} is replaced with the escaped name
	// that the user typed: "(&(objectClass=person)(uid={}))".
	Filter string `json:"filter"`
	// UsernameAttribute is the attribute with the user name. It must have exactly
	// one value. The typed name is never the user name.
	UsernameAttribute string `json:"usernameAttribute"`
	// UIDAttribute is the attribute with the uid. A binary value, such as
	// objectGUID, is written in hexadecimal digits. Without it, users have no uid.
	UIDAttribute string `json:"uidAttribute,omitempty"`
	// Extra are further attributes for the user's extra.
	Extra []ExtraAttribute `json:"extra,omitempty"`
}

// ExtraAttribute is a key of the user's extra and its values.
type ExtraAttribute struct {
	// Key is the lower-case key, with a domain: "example.org/department".
	Key string `json:"key"`
	// Attribute is an attribute of the user's entry. Each of its values is added.
	Attribute string `json:"attribute"`
}

// GroupNesting is whether members of nested groups are members.
type GroupNesting string

// The values of GroupNesting.
const (
	// NestingNone is the default: only groups that list the user.
	NestingNone GroupNesting = "None"
	// NestingRecursive searches the groups of groups, level by level.
	NestingRecursive GroupNesting = "Recursive"
	// NestingActiveDirectory uses the matching rule LDAP_MATCHING_RULE_IN_CHAIN of
	// Active Directory and Samba.
	NestingActiveDirectory GroupNesting = "ActiveDirectory"
)

// GroupSearch finds the groups of a user.
type GroupSearch struct {
	// BaseDN is the base of the search.
	BaseDN string `json:"baseDN"`
	// Filter is an LDAP filter. {} is replaced with the escaped value of
	// MemberValue: "(&(objectClass=groupOfNames)(member={}))". With nesting
	// ActiveDirectory it is "(member:1.2.840.113556.1.4.1941:={})".
	Filter string `json:"filter"`
	// MemberValue is the attribute of the user's entry (and of a group's, with
	// nesting) that groups use to list members. The default is the DN; for
	// posixGroup it is "uid".
	MemberValue string `json:"memberValue,omitempty"`
	// NameAttribute is the attribute with the name of the group. The default is
	// "cn".
	NameAttribute string `json:"nameAttribute,omitempty"`
	// Nesting is whether members of nested groups are members.
	Nesting GroupNesting `json:"nesting,omitempty"`
	// MaxGroups is the maximum number of groups of a user. A user with more groups
	// cannot log in. The default is 500, the maximum 10000.
	MaxGroups int `json:"maxGroups,omitempty"`
}

// LoginConfiguration configures the tokens that the login endpoint issues: for a user name and a password of a directory, and with a
// scope for the token of an identity provider.
type LoginConfiguration struct {
	// Keys sign the tokens. The first key signs, and all keys verify. All replicas
	// need the same keys.
	Keys []LoginKey `json:"keys"`
	// TokenTTL is how long a token is valid. Its renewal asks the directory again
	// for the user and the groups. A token that was made from one of an identity provider
	// ends with that one at the latest. The default is 15m, the minimum 1m,
	// the maximum 24h.
	TokenTTL *metav1.Duration `json:"tokenTTL,omitempty"`
	// SessionTTL is how long tokens are renewed without a password. The default is
	// 10h, the maximum 720h. It must not be less than tokenTTL. A shorter one also ends open sessions earlier.
	SessionTTL *metav1.Duration `json:"sessionTTL,omitempty"`
	// Audiences are the audiences of the tokens of directories' users. Without any, they are valid for
	// the API server's audiences, as those of identity providers always are.
	Audiences []string `json:"audiences,omitempty"`
}

// LoginKey is a key for login tokens.
type LoginKey struct {
	// Name is a DNS-1123 label. It is part of every token.
	Name string `json:"name"`
	// File is the path of a file with the key: at least 32 random bytes in base64,
	// created by 'gatehouse token key'.
	File string `json:"file"`
}

// GuardConfiguration extends the identity guard. A source of identities is
// "access-tokens", the name of a directory or the URL of an issuer.
type GuardConfiguration struct {
	// Prefixes are required prefixes of user names and groups of a source.
	Prefixes []RequiredPrefix `json:"prefixes,omitempty"`
	// AllowedGroups are reserved groups that named sources may return.
	AllowedGroups []AllowedGroup `json:"allowedGroups,omitempty"`
}

// RequiredPrefix is the required prefix of the identities of a source.
type RequiredPrefix struct {
	// Source is "access-tokens", the name of a directory or the URL of an issuer.
	Source string `json:"source"`
	// Username and Groups are the prefixes. An empty prefix requires nothing.
	Username string `json:"username,omitempty"`
	Groups   string `json:"groups,omitempty"`
}

// AllowedGroup is a reserved group that named sources may return.
type AllowedGroup struct {
	// Name is the full name, such as "system:masters".
	Name string `json:"name"`
	// Sources are the sources that may return it. At least one.
	Sources []string `json:"sources"`
}

// AccessTokensSource is the source of the identities of access tokens.
const AccessTokensSource = "access-tokens"
