// Package ldapconfig checks the configuration of an LDAP directory. It has the syntax that the configuration and an LDAP
// client share: URLs of servers, names of entries (RFC 4514) and search filters (RFC 4515). It connects to no server.
package ldapconfig
