module rivals

go 1.23
