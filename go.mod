module github.com/nodelvm/nodelvm

go 1.26.0
