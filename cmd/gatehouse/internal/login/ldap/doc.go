// Package ldap checks passwords with LDAP and Active Directory services, and looks up groups.
//
// For a login, it searches the entry of the user name with the account of the configuration, and then binds as that entry
// with the password. The identity comes from the entry. The name that the user typed is used only as an escaped value in
// the filter. All connections use TLS, and referrals are not followed.
//
// Searches and password checks never share a connection: a connection is bound once and then closed, so no search can run
// with the rights of a user who logs in.
package ldap
