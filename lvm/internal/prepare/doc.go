// Package prepare creates and extends the declared volume groups from devices that are proven blank.
package prepare
