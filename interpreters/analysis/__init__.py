"""Facts about jaxprs that passes and derivatives ask for; nothing here changes a program."""
